-- TPC-C's random values (clauses 2.1.6 and 4.3.2).

local workload = require("workload")

local M = {}

M.ITEMS = 100000
M.DISTRICTS = 10
M.CUSTOMERS = 3000
M.ORDERS = 3000
-- Orders from this one on are new ones when a database is loaded.
M.FIRST_NEW_ORDER = 2101

local SYLLABLES = { "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING" }
local LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

-- The constants of NURand: those of the runs differ from those of the load by an allowed distance (2.1.6.1).
local C_LOAD, C_LAST, C_CUSTOMER, C_ITEM = 123, 219, 259, 7911

local bit = require("bit")

local function nurand(a, c, low, high)
   return (bit.bor(workload.between(0, a), workload.between(low, high)) + c) % (high - low + 1) + low
end

function M.customer()
   return nurand(1023, C_CUSTOMER, 1, M.CUSTOMERS)
end

function M.item()
   return nurand(8191, C_ITEM, 1, M.ITEMS)
end

-- The last name with this number, 0 to 999.
function M.last_name(number)
   return SYLLABLES[math.floor(number / 100) + 1] .. SYLLABLES[math.floor(number / 10) % 10 + 1] ..
      SYLLABLES[number % 10 + 1]
end

function M.some_last_name()
   return M.last_name(nurand(255, C_LAST, 0, 999))
end

function M.loaded_last_name(customer)
   return M.last_name(customer <= 1000 and customer - 1 or nurand(255, C_LOAD, 0, 999))
end

function M.text(least, most)
   local letters = {}
   for i = 1, workload.between(least, most) do
      local at = workload.between(1, #LETTERS)
      letters[i] = LETTERS:sub(at, at)
   end
   return table.concat(letters)
end

function M.digits(number)
   local digits = {}
   for i = 1, number do
      digits[i] = workload.between(0, 9)
   end
   return table.concat(digits)
end

function M.zip()
   return M.digits(4) .. "11111"
end

-- Text of which a tenth has ORIGINAL somewhere.
function M.data()
   local text = M.text(26, 50)
   if workload.between(1, 10) == 1 then
      local at = workload.between(1, #text - 8)
      text = text:sub(1, at) .. "ORIGINAL" .. text:sub(at + 9)
   end
   return text
end

-- 1 to n in random order.
function M.permutation(n)
   local order = {}
   for i = 1, n do
      order[i] = i
   end
   for i = n, 2, -1 do
      local j = workload.between(1, i)
      order[i], order[j] = order[j], order[i]
   end
   return order
end

return M
