#!/usr/bin/env sysbench
-- TPC-C for sysbench: its tables, its five transactions dealt from a deck of 23 cards, its consistency conditions. Without
-- keying and thinking times, so the figures are not the TPC's; README.md says what else differs.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
package.path = here .. "?.lua;" .. here .. "../lib/?.lua;" .. package.path
local workload = require("workload")
local load = require("load")
local checks = require("checks")
local transactions = require("transactions")

sysbench.cmdline.options = {
   warehouses = { "Warehouses of the database; one is some 100 MB", 1 },
   roam = { "Each transaction is at a warehouse drawn at random; otherwise a thread has one for all", false },
   isolation = { "Isolation level of the transactions", "REPEATABLE READ" },
   storage_engine = workload.options.storage_engine,
   json_file = workload.options.json_file,
}

-- Name, cards in the deck, the seconds within which 90 % of them must be done, and their least share in percent.
local KINDS = {
   { "new_order", 10, 5, 0 },
   { "payment", 10, 5, 43 },
   { "order_status", 1, 5, 4 },
   { "delivery", 1, 80, 4 },
   { "stock_level", 1, 20, 4 },
}

local names = {}
for kind, about in ipairs(KINDS) do
   names[kind] = about[1]
end

-- All cards, shuffled (Fisher and Yates).
local function shuffled_deck()
   local deck = {}
   for kind, about in ipairs(KINDS) do
      for _ = 1, about[2] do
         deck[#deck + 1] = kind
      end
   end
   for i = #deck, 2, -1 do
      local j = workload.between(1, i)
      deck[i], deck[j] = deck[j], deck[i]
   end
   return deck
end

sysbench.cmdline.commands = {
   prepare = { load.load, sysbench.cmdline.PARALLEL_COMMAND },
   check = { checks.check },
   cleanup = { load.cleanup },
}

function init()
   workload.begin(names)
end

function thread_init()
   con = sysbench.sql.driver():connect()
   con:query("SET SESSION TRANSACTION ISOLATION LEVEL " .. sysbench.opt.isolation)
   note = workload.recorder(names)
   -- A terminal belongs to one warehouse; tpcc-mysql's draws one for each transaction.
   local home = 1 + sysbench.tid % sysbench.opt.warehouses
   terminal = transactions.terminal(con, function()
      return sysbench.opt.roam and workload.between(1, sysbench.opt.warehouses) or home
   end)
   deck = {}
   workload.undo_before_restart()
end

function event()
   if #deck == 0 then
      deck = shuffled_deck()
   end
   local kind = deck[#deck]
   local begun = workload.now_us()
   terminal[names[kind]]()
   note(kind, workload.now_us() - begun)
   -- Only now: what is retried after a deadlock is the same transaction.
   deck[#deck] = nil
end

function thread_done()
   con:disconnect()
end

function sysbench.hooks.report_cumulative(stat)
   local results = workload.results()
   local total = 0
   for _, r in ipairs(results) do
      total = total + r.count
   end
   local more = {
      { "tpmC", results[1].count * 60 / stat.time_total },
      { "retried", tonumber(stat.errors) },
   }
   for kind, about in ipairs(KINDS) do
      local name, _, limit_s, least = unpack(about)
      more[#more + 1] = { name .. " 90 % in time", results[kind].p90_us <= limit_s * 1e6 }
      more[#more + 1] = { name .. " share ok", total > 0 and 100 * results[kind].count / total >= least }
   end
   workload.report(stat.time_total, results, more)
end
