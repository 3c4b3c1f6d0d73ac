-- LinkBench's graph: who has how many links, and to whom, is a function of the id, so that a request knows what was
-- loaded. And what nodes and links carry.

local workload = require("workload")

local M = {}

-- Bytes of payload, the median.
local LINK_MEDIAN, LINK_MAX, NODE_MEDIAN, NODE_MAX = 8, 255, 128, 65535
-- Links' number of a node: Pareto's law with this exponent, cut at `links_max`; an assumption (README.md).
local LINKS_ALPHA = 1.3
-- Types are numbered from here.
local TYPE_FIRST = 123456789

-- A number in (0, 1] that depends on these integers alone.
local function fraction(a, b, c)
   local x = (a * 2654435761 + b * 40503 + c * 12289 + 12345) % 4294967296
   x = (x * 69069 + 362437) % 4294967296
   x = (math.floor(x / 65536) + (x % 65536) * 48271) % 4294967296
   x = (x * 1664525 + 1013904223) % 4294967296
   return (x + 1) / 4294967296
end

-- The least number of links before cutting that gives the mean: P(n >= k) = min(1, (least / k)^alpha).
local function least_links(mean, max)
   local function mean_of(least)
      local sum = 0
      for k = 1, max do
         sum = sum + math.min(1, (least / k) ^ LINKS_ALPHA)
      end
      return sum
   end
   local low, high = 0, mean
   for _ = 1, 40 do
      local middle = (low + high) / 2
      if mean_of(middle) < mean then
         low = middle
      else
         high = middle
      end
   end
   return low
end

local least

function M.links_of(id)
   least = least or least_links(sysbench.opt.links_mean, sysbench.opt.links_max)
   local links = math.floor(least * fraction(id, 0, 0) ^ (-1 / LINKS_ALPHA))
   return math.min(links, sysbench.opt.links_max)
end

-- Link number i of a node: its type, and the node that it leads to. Two may be the same: then there is one less.
function M.link_of(id, i)
   local type = TYPE_FIRST + i % sysbench.opt.link_types
   return type, 1 + math.floor(fraction(id, i, type) * sysbench.opt.ids) % sysbench.opt.ids
end

-- A node's link that was loaded, if it has any.
function M.some_link(id1)
   local links = M.links_of(id1)
   return M.link_of(id1, links > 0 and workload.between(0, links - 1) or 0)
end

function M.some_type()
   return TYPE_FIRST + workload.between(0, sysbench.opt.link_types - 1)
end

local payload_letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

-- Text that compresses a little: a motif, with letters of its own in between.
local function payload(bytes)
   local letters = {}
   for i = 1, bytes do
      local fresh = i % 4 == 0
      local at = fresh and workload.between(1, 64) or (i * 7) % 64 + 1
      letters[i] = payload_letters:sub(at, at)
   end
   return table.concat(letters)
end

function M.link_payload()
   return payload(workload.size_around(LINK_MEDIAN, LINK_MAX))
end

function M.node_payload()
   return payload(workload.size_around(NODE_MEDIAN, NODE_MAX))
end

return M
