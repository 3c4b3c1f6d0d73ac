#!/usr/bin/env sysbench
-- LinkBench (Armstrong et al., SIGMOD 2013) for sysbench: Facebook's social graph as three tables, its published mix of
-- operations, and its published skew. README.md says what it takes from the paper and what it assumes.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
package.path = here .. "?.lua;" .. here .. "../lib/?.lua;" .. package.path
local workload = require("workload")
local graph = require("graph")

sysbench.cmdline.options = {
   ids = { "Nodes of the graph", 100000 },
   link_types = { "Types of links; each node has its links of each type in equal parts", 2 },
   links_mean = { "Links of a node, on average", 4.74 },
   links_max = { "Links of a node, at most", 10000 },
   list_limit = { "Links that a list query returns at most", 10000 },
   storage_engine = workload.options.storage_engine,
   json_file = workload.options.json_file,
}

-- Names and shares of the operations, in percent, and which ids they choose.
local OPERATIONS = {
   { "getlinklist", 50.7119145 },
   { "getnode", 12.9326683 },
   { "addlink", 8.9886601 },
   { "updatelink", 8.0122125 },
   { "updatenode", 7.366437 },
   { "countlink", 4.8863567 },
   { "deletelink", 2.9907664 },
   { "addnode", 2.5732789 },
   { "deletenode", 1.0115914 },
   { "getlink", 0.5261142 },
}
-- Exponents of Zipf's law; deletes of nodes are uniform.
local SKEW = { link_read = 0.8, link_write = 0.741, node_read = 0.625, node_update = 0.606 }
local HISTORY_SHARE = 0.3
-- Ids of one getlink: geometric.
local MULTIGET_P, MULTIGET_MAX = 0.382, 128
local NODE_TYPE = 2048
local ROWS_A_STATEMENT = 500

local names = {}
for i, operation in ipairs(OPERATIONS) do
   names[i] = operation[1]
end

-- ---------------------------------------------------------------------------------------------------------------
-- Loading
-- ---------------------------------------------------------------------------------------------------------------

local TABLES = {
   [[CREATE TABLE nodetable (
      id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
      type INT UNSIGNED NOT NULL,
      version BIGINT UNSIGNED NOT NULL,
      time INT UNSIGNED NOT NULL,
      data MEDIUMTEXT NOT NULL,
      PRIMARY KEY (id)
   ) ENGINE=%s DEFAULT CHARSET=latin1 COLLATE=latin1_bin]],
   [[CREATE TABLE linktable (
      id1 BIGINT UNSIGNED NOT NULL,
      id2 BIGINT UNSIGNED NOT NULL,
      link_type BIGINT UNSIGNED NOT NULL,
      visibility TINYINT NOT NULL,
      data VARCHAR(255) NOT NULL,
      time BIGINT UNSIGNED NOT NULL,
      version INT UNSIGNED NOT NULL,
      PRIMARY KEY (link_type, id1, id2),
      KEY id1_type (id1, link_type, visibility, time, id2, version, data)
   ) ENGINE=%s DEFAULT CHARSET=latin1 COLLATE=latin1_bin]],
   [[CREATE TABLE counttable (
      id BIGINT UNSIGNED NOT NULL,
      link_type BIGINT UNSIGNED NOT NULL,
      count INT UNSIGNED NOT NULL,
      time BIGINT UNSIGNED NOT NULL,
      version BIGINT UNSIGNED NOT NULL,
      PRIMARY KEY (id, link_type)
   ) ENGINE=%s DEFAULT CHARSET=latin1 COLLATE=latin1_bin]],
}

local function create(con)
   for _, definition in ipairs(TABLES) do
      con:query(definition:format(sysbench.opt.storage_engine))
   end
end

-- Collects rows for a table and inserts them many at a time.
local function inserter(con, head)
   local rows = {}
   local function flush()
      if #rows > 0 then
         con:query(head .. table.concat(rows, ","))
         rows = {}
      end
   end
   return function(row)
      rows[#rows + 1] = row
      if #rows >= ROWS_A_STATEMENT then
         flush()
      end
   end, flush
end

-- Thread t of n loads the ids with id % n = t; the first one makes the tables, the others wait for them.
local function load()
   local drv = sysbench.sql.driver()
   local con = drv:connect()
   if sysbench.tid == 0 then
      create(con)
   else
      local there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'counttable'"
      while workload.number(con, there) == 0 do
         con:query("DO SLEEP(0.05)")
      end
   end
   local node, flush_nodes = inserter(con, "INSERT INTO nodetable (id, type, version, time, data) VALUES ")
   local link, flush_links = inserter(con,
      "INSERT INTO linktable (id1, id2, link_type, visibility, data, time, version) VALUES ")
   local count, flush_counts = inserter(con, "INSERT INTO counttable (id, link_type, count, time, version) VALUES ")
   local ids, threads = sysbench.opt.ids, sysbench.opt.threads
   local started, told = workload.now_us(), workload.now_us()
   local links = 0
   for id = sysbench.tid + 1, ids, threads do
      node(string.format("(%d,%d,0,%d,'%s')", id, NODE_TYPE, os.time(), graph.node_payload()))
      local counts, seen = {}, {}
      for i = 0, graph.links_of(id) - 1 do
         local type, to = graph.link_of(id, i)
         local known = seen[type] or {}
         seen[type] = known
         if not known[to] then
            known[to] = true
            counts[type] = (counts[type] or 0) + 1
            links = links + 1
            link(string.format("(%d,%d,%d,1,'%s',%d,0)", id, to, type, graph.link_payload(), 1e9 + i))
         end
      end
      for type, number in pairs(counts) do
         count(string.format("(%d,%d,%d,%d,0)", id, type, number, os.time()))
      end
      if workload.now_us() - told > 5e6 then
         told = workload.now_us()
         print(string.format("thread %d: %.1f %% of its %d ids, %.2f links an id, %.0f ids/s", sysbench.tid,
            100 * id / ids, math.floor(ids / threads), links * threads / id,
            id / threads / ((told - started) / 1e6)))
      end
   end
   flush_nodes()
   flush_links()
   flush_counts()
   print(string.format("thread %d: loaded, %d links", sysbench.tid, links))
   con:disconnect()
end

-- ---------------------------------------------------------------------------------------------------------------
-- Checks: what holds after any number of requests.
-- ---------------------------------------------------------------------------------------------------------------

local CHECKS = {
   { "a count that is not its visible links' number",
      [[SELECT COUNT(*) FROM counttable c LEFT JOIN (SELECT id1, link_type, SUM(visibility) n FROM linktable
        GROUP BY id1, link_type) l ON l.id1 = c.id AND l.link_type = c.link_type
        WHERE c.count <> COALESCE(l.n, 0)]] },
   { "visible links without a count",
      [[SELECT COUNT(*) FROM (SELECT id1, link_type, SUM(visibility) n FROM linktable GROUP BY id1, link_type) l
        LEFT JOIN counttable c ON c.id = l.id1 AND c.link_type = l.link_type WHERE l.n > 0 AND c.id IS NULL]] },
}

local function check()
   local con = sysbench.sql.driver():connect()
   local failed = 0
   for _, rule in ipairs(CHECKS) do
      local found = workload.number(con, rule[2])
      print(string.format("%s: %d", rule[1], found))
      failed = failed + found
   end
   con:disconnect()
   assert(failed == 0, "the database is not consistent")
end

local function cleanup()
   local con = sysbench.sql.driver():connect()
   con:query("DROP TABLE IF EXISTS nodetable, linktable, counttable")
   con:disconnect()
end

sysbench.cmdline.commands = {
   prepare = { load, sysbench.cmdline.PARALLEL_COMMAND },
   check = { check },
   cleanup = { cleanup },
}

-- ---------------------------------------------------------------------------------------------------------------
-- Requests
-- ---------------------------------------------------------------------------------------------------------------

local function transaction(work)
   con:query("BEGIN")
   work()
   con:query("COMMIT")
end

-- Makes a link visible, or makes it; the count follows.
local function put_link(id1, type, id2)
   local data, now = graph.link_payload(), os.time()
   transaction(function()
      con:query(string.format(
         "INSERT INTO linktable (id1, id2, link_type, visibility, data, time, version) VALUES (%d,%d,%d,1,'%s',%d,0) " ..
         "ON DUPLICATE KEY UPDATE visibility = 1", id1, id2, type, data, now))
      -- 1: a new row. 2: it was hidden. 0: it was there.
      local changed = workload.number(con, "SELECT ROW_COUNT()")
      if changed ~= 0 then
         con:query(string.format(
            "INSERT INTO counttable (id, link_type, count, time, version) VALUES (%d,%d,1,%d,0) " ..
            "ON DUPLICATE KEY UPDATE count = count + 1, version = version + 1, time = %d", id1, type, now, now))
      end
      if changed ~= 1 then
         con:query(string.format(
            "UPDATE linktable SET data = '%s', time = %d, version = version + 1 WHERE id1 = %d AND id2 = %d AND link_type = %d",
            data, now, id1, id2, type))
      end
   end)
end

-- Hides a link; the count follows.
local function hide_link(id1, type, id2)
   transaction(function()
      local visible = workload.number(con, string.format(
         "SELECT visibility FROM linktable WHERE id1 = %d AND id2 = %d AND link_type = %d FOR UPDATE", id1, id2, type))
      if visible == 1 then
         con:query(string.format(
            "UPDATE linktable SET visibility = 0 WHERE id1 = %d AND id2 = %d AND link_type = %d", id1, id2, type))
         con:query(string.format(
            "UPDATE counttable SET count = count - 1, version = version + 1, time = %d WHERE id = %d AND link_type = %d",
            os.time(), id1, type))
      end
   end)
end

local choose = {}

local requests = {
   getlinklist = function()
      local before = ""
      if workload.uniform() < HISTORY_SHARE then
         before = string.format("AND time <= %d ", 1e9 + workload.between(0, 100))
      end
      con:query(string.format(
         "SELECT id1, id2, link_type, visibility, data, time, version FROM linktable FORCE INDEX (id1_type) " ..
         "WHERE id1 = %d AND link_type = %d AND visibility = 1 %sORDER BY time DESC LIMIT %d",
         choose.link_read(), graph.some_type(), before, sysbench.opt.list_limit))
   end,
   getnode = function()
      con:query(string.format("SELECT id, type, version, time, data FROM nodetable WHERE id = %d", choose.node_read()))
   end,
   addlink = function()
      put_link(choose.link_write(), graph.some_type(), workload.between(1, sysbench.opt.ids))
   end,
   updatelink = function()
      local id1 = choose.link_write()
      put_link(id1, graph.some_link(id1))
   end,
   updatenode = function()
      con:query(string.format("UPDATE nodetable SET version = version + 1, time = %d, data = '%s' WHERE id = %d",
         os.time(), graph.node_payload(), choose.node_update()))
   end,
   countlink = function()
      con:query(string.format("SELECT count, version FROM counttable WHERE id = %d AND link_type = %d",
         choose.link_read(), graph.some_type()))
   end,
   deletelink = function()
      local id1 = choose.link_write()
      hide_link(id1, graph.some_link(id1))
   end,
   addnode = function()
      con:query(string.format("INSERT INTO nodetable (type, version, time, data) VALUES (%d,0,%d,'%s')", NODE_TYPE,
         os.time(), graph.node_payload()))
   end,
   deletenode = function()
      con:query(string.format("DELETE FROM nodetable WHERE id = %d", workload.between(1, sysbench.opt.ids)))
   end,
   getlink = function()
      local id1 = choose.link_read()
      local type, first = graph.some_link(id1)
      local wanted = { first }
      while #wanted < MULTIGET_MAX and workload.uniform() >= MULTIGET_P do
         local _, id2 = graph.some_link(id1)
         wanted[#wanted + 1] = id2
      end
      con:query(string.format(
         "SELECT id1, id2, link_type, visibility, data, time, version FROM linktable " ..
         "WHERE id1 = %d AND link_type = %d AND id2 IN (%s)", id1, type, table.concat(wanted, ",")))
   end,
}

function init()
   workload.begin(names)
end

function thread_init()
   con = sysbench.sql.driver():connect()
   note = workload.recorder(names)
   local ids = sysbench.opt.ids
   for i, use in ipairs({ "link_read", "link_write", "node_read", "node_update" }) do
      local rank, place = workload.zipf(ids, SKEW[use]), workload.permutation(ids, i * 7919)
      choose[use] = function()
         return 1 + place(rank())
      end
   end
   workload.undo_before_restart()
end

function event()
   local drawn, kind = workload.uniform() * 100, 1
   while kind < #OPERATIONS and drawn >= OPERATIONS[kind][2] do
      drawn = drawn - OPERATIONS[kind][2]
      kind = kind + 1
   end
   local begun = workload.now_us()
   requests[names[kind]]()
   note(kind, workload.now_us() - begun)
end

function thread_done()
   con:disconnect()
end

function sysbench.hooks.report_cumulative(stat)
   workload.report(stat.time_total, workload.results(), { { "retried", tonumber(stat.errors) } })
end
