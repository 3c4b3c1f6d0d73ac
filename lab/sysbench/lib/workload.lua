-- What LinkBench and TPC-C share: a clock, a latency histogram for each kind of operation, and the report.
--
-- sysbench gives each thread a Lua state of its own, so the histograms lie in one block of C memory whose address the
-- environment carries; each thread writes to its own part of it, and the last report adds the parts up.

local ffi = require("ffi")

ffi.cdef [[
typedef struct { long tv_sec; long tv_nsec; } workload_time;
int clock_gettime(int clock, workload_time *time);
void *calloc(size_t count, size_t bytes);
int setenv(const char *name, const char *value, int overwrite);
char *getenv(const char *name);
]]

local M = {}

-- ---------------------------------------------------------------------------------------------------------------
-- Time
-- ---------------------------------------------------------------------------------------------------------------

local MONOTONIC = 1
local time = ffi.new("workload_time")

-- Microseconds of the monotonic clock.
function M.now_us()
   ffi.C.clock_gettime(MONOTONIC, time)
   return tonumber(time.tv_sec) * 1e6 + tonumber(time.tv_nsec) / 1e3
end

-- ---------------------------------------------------------------------------------------------------------------
-- Random numbers
-- ---------------------------------------------------------------------------------------------------------------

-- A number in [0, 1).
function M.uniform()
   return sysbench.rand.uniform_double()
end

-- An integer from `low` to `high`, both included.
function M.between(low, high)
   return sysbench.rand.uniform(low, high)
end

-- A normally distributed number with mean 0 and deviation 1 (Box and Muller).
function M.normal()
   local u = 1 - M.uniform()
   return math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * M.uniform())
end

-- Sizes with this median, log-normal with deviation 1, at most `max`.
function M.size_around(median, max)
   local size = math.floor(median * math.exp(M.normal()) + 0.5)
   return math.min(math.max(size, 0), max)
end

-- sum of 1 / i^theta for i from 1 to n: the first terms one by one, the rest by Euler and Maclaurin.
local function zeta(n, theta)
   local exact = math.min(n, 10000)
   local sum = 0
   for i = 1, exact do
      sum = sum + i ^ -theta
   end
   if n > exact then
      local from, to = exact, n
      local integral = (to ^ (1 - theta) - from ^ (1 - theta)) / (1 - theta)
      sum = sum + integral + (to ^ -theta - from ^ -theta) / 2
   end
   return sum
end

-- A generator of ranks 0 to n - 1 with probability proportional to 1 / (rank + 1)^theta, 0 < theta < 1, by the method of
-- Gray et al., "Quickly generating billion-record synthetic databases" (1994).
function M.zipf(n, theta)
   local zeta_n, zeta_2 = zeta(n, theta), zeta(2, theta)
   local alpha = 1 / (1 - theta)
   local eta = (1 - (2 / n) ^ (1 - theta)) / (1 - zeta_2 / zeta_n)
   return function()
      local u = M.uniform()
      local z = u * zeta_n
      if z < 1 then
         return 0
      end
      if z < 1 + 0.5 ^ theta then
         return 1
      end
      return math.min(n - 1, math.floor(n * (eta * u - eta + 1) ^ alpha))
   end
end

-- A fixed permutation of 0 to n - 1, so that what is drawn often does not lie side by side. n is below 2^26.
function M.permutation(n, salt)
   local function gcd(a, b)
      while b ~= 0 do
         a, b = b, a % b
      end
      return a
   end
   local factor = math.floor(n * 0.6180339887) + 2 * salt + 1
   while gcd(factor, n) ~= 1 do
      factor = factor + 1
   end
   return function(i)
      -- Below 2^53 throughout.
      return (i * (factor % n) + salt) % n
   end
end

-- ---------------------------------------------------------------------------------------------------------------
-- Latencies
-- ---------------------------------------------------------------------------------------------------------------

-- Buckets grow by 5 %: 400 of them reach from 1 us to 300 s.
local BUCKETS = 400
local GROWTH = math.log(1.05)
-- Behind the buckets of a kind: count, sum in us, and how many ended in each second of the run.
local COUNT, SUM, BY_SECOND = BUCKETS, BUCKETS + 1, BUCKETS + 2
-- Before all threads' slots: when the first operation began, us.
local HEAD = 1
local ENV = "FOREBAY_WORKLOAD_STATS"

local function bucket_of(us)
   if us <= 1 then
      return 0
   end
   return math.min(BUCKETS - 1, math.floor(math.log(us) / GROWTH))
end

local function value_of(bucket)
   return math.exp((bucket + 0.5) * GROWTH)
end

local function slots_of_a_kind()
   return BY_SECOND + sysbench.opt.time
end

-- Once, before the threads start: a run gets room for `threads` times `kinds` histograms.
function M.begin(kinds)
   if sysbench.cmdline.command ~= "run" then
      return
   end
   local room = ffi.C.calloc(HEAD + sysbench.opt.threads * #kinds * slots_of_a_kind(), 8)
   assert(room ~= nil, "no memory for the latencies")
   ffi.C.setenv(ENV, string.format("%d", tonumber(ffi.cast("intptr_t", room))), 1)
   M.kinds = kinds
end

local function room()
   local address = ffi.C.getenv(ENV)
   assert(address ~= nil, "begin was not called")
   return ffi.cast("double *", ffi.cast("intptr_t", tonumber(ffi.string(address))))
end

-- In a thread: `note(kind, us)`, kind counted from 1.
function M.recorder(kinds)
   local all, width = room(), slots_of_a_kind()
   local mine = all + HEAD + sysbench.tid * #kinds * width
   return function(kind, us)
      local slots, now = mine + (kind - 1) * width, M.now_us()
      slots[bucket_of(us)] = slots[bucket_of(us)] + 1
      slots[COUNT] = slots[COUNT] + 1
      slots[SUM] = slots[SUM] + us
      -- All threads begin at the same time, so it does not matter which of them says when that was.
      if all[0] == 0 then
         all[0] = now - us
      end
      local slot = BY_SECOND + math.max(0, math.floor((now - all[0]) / 1e6))
      if slot < width then
         slots[slot] = slots[slot] + 1
      end
   end
end

-- After the threads ended: for each kind its name, count, mean and percentiles in us, and how many ended in each second.
function M.results()
   local all, width = room() + HEAD, slots_of_a_kind()
   local results = {}
   for kind, name in ipairs(M.kinds) do
      local sums = {}
      for slot = 0, width - 1 do
         sums[slot] = 0
         for thread = 0, sysbench.opt.threads - 1 do
            sums[slot] = sums[slot] + all[(thread * #M.kinds + kind - 1) * width + slot]
         end
      end
      local function percentile(share)
         local wanted, seen = share * sums[COUNT], 0
         for bucket = 0, BUCKETS - 1 do
            seen = seen + sums[bucket]
            if seen >= wanted and seen > 0 then
               return value_of(bucket)
            end
         end
         return 0
      end
      results[kind] = {
         name = name,
         count = sums[COUNT],
         by_second = table.concat(sums, ",", BY_SECOND, width - 1),
         mean_us = sums[COUNT] > 0 and sums[SUM] / sums[COUNT] or 0,
         p50_us = percentile(0.5),
         p90_us = percentile(0.9),
         p99_us = percentile(0.99),
         p999_us = percentile(0.999),
      }
   end
   return results
end

-- Prints the results as a table; with `--json_file`, writes them there too, with what `more` says of the whole.
function M.report(seconds, results, more)
   local total = 0
   for _, r in ipairs(results) do
      total = total + r.count
   end
   print(string.format("%-14s %12s %10s %7s %10s %10s %10s %10s %10s", "operation", "count", "per s", "share",
      "mean us", "p50 us", "p90 us", "p99 us", "p99.9 us"))
   for _, r in ipairs(results) do
      print(string.format("%-14s %12d %10.1f %6.2f%% %10.0f %10.0f %10.0f %10.0f %10.0f", r.name, r.count,
         r.count / seconds, total > 0 and 100 * r.count / total or 0, r.mean_us, r.p50_us, r.p90_us, r.p99_us,
         r.p999_us))
   end
   print(string.format("%-14s %12d %10.1f", "all", total, total / seconds))
   for _, pair in ipairs(more) do
      print(string.format("%s: %s", pair[1], tostring(pair[2])))
   end
   if sysbench.opt.json_file ~= "" then
      local out = assert(io.open(sysbench.opt.json_file, "w"))
      local parts = {}
      for _, r in ipairs(results) do
         parts[#parts + 1] = string.format(
            '{"operation":"%s","count":%d,"per_s":%.2f,"mean_us":%.1f,"p50_us":%.1f,"p90_us":%.1f,' ..
            '"p99_us":%.1f,"p999_us":%.1f,"by_second":[%s]}', r.name, r.count, r.count / seconds, r.mean_us, r.p50_us,
            r.p90_us, r.p99_us, r.p999_us, r.by_second)
      end
      out:write(string.format('{"threads":%d,"seconds":%.3f,"operations_per_s":%.2f', sysbench.opt.threads, seconds,
         total / seconds))
      for _, pair in ipairs(more) do
         local value = pair[2]
         if type(value) == "boolean" or type(value) == "number" then
            out:write(string.format(',"%s":%s', (pair[1]:gsub(" ", "_")), tostring(value)))
         else
            out:write(string.format(',"%s":"%s"', (pair[1]:gsub(" ", "_")), tostring(value)))
         end
      end
      out:write(',"operations":[', table.concat(parts, ","), "]}\n")
      assert(out:close())
   end
end

-- ---------------------------------------------------------------------------------------------------------------
-- SQL
-- ---------------------------------------------------------------------------------------------------------------

-- The first column of the first row of what a query answers, as a number; nil without a row.
function M.number(con, query)
   local row = con:query_row(query)
   return row and tonumber(row)
end

-- After an error that sysbench retries (deadlock, lock wait): what the interrupted transaction did is undone, since the
-- BEGIN of the retry would commit it.
function M.undo_before_restart()
   function sysbench.hooks.before_restart_event()
      con:query("ROLLBACK")
   end
end

-- Options that both workloads have.
M.options = {
   storage_engine = { "Storage engine of the tables", "innodb" },
   json_file = { "File to write the report to as JSON", "" },
}

return M
