-- TPC-C's transactions (clauses 2.4 to 2.8), as a terminal of one warehouse makes them.

local workload = require("workload")
local random = require("random")

local M = {}

-- Rolls back a transaction that is meant to fail.
local ROLLBACK = {}

-- Runs `work` between BEGIN and COMMIT.
local function transaction(con, work)
   con:query("BEGIN")
   if work() == ROLLBACK then
      con:query("ROLLBACK")
   else
      con:query("COMMIT")
   end
end

-- Another warehouse, if there is one.
local function other_warehouse(home)
   local warehouses = sysbench.opt.warehouses
   if warehouses == 1 then
      return home
   end
   local w = workload.between(1, warehouses - 1)
   return w >= home and w + 1 or w
end

-- The customer by id, or, six times in ten, the middle one of those with a last name (2.5.2.2).
local function some_customer(con, w, d)
   if workload.between(1, 100) > 60 then
      return random.customer()
   end
   local found = con:query(string.format(
      "SELECT c_id FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_last = '%s' ORDER BY c_first", w, d,
      random.some_last_name()))
   local ids = {}
   for i = 1, found.nrows do
      ids[i] = tonumber(found:fetch_row()[1])
   end
   -- Each of the names was given to a customer; an empty answer would be a broken database.
   return ids[math.ceil(#ids / 2)] or random.customer()
end

-- 2.4: an order of 5 to 15 items. One in a hundred names an item that does not exist, and is rolled back.
local function new_order(con, home)
   local d, c = workload.between(1, random.DISTRICTS), random.customer()
   local number = workload.between(5, 15)
   local is_wrong = workload.between(1, 100) == 1
   local lines, all_local = {}, 1
   for line = 1, number do
      local supply = home
      if workload.between(1, 100) == 1 then
         supply = other_warehouse(home)
      end
      if supply ~= home then
         all_local = 0
      end
      lines[line] = { item = random.item(), supply = supply, quantity = workload.between(1, 10) }
   end
   -- All terminals take stock's rows in one order, so that they rarely dead-lock.
   table.sort(lines, function(a, b)
      return a.supply < b.supply or a.supply == b.supply and a.item < b.item
   end)
   if is_wrong then
      lines[number].item = random.ITEMS + 1
   end
   transaction(con, function()
      con:query(string.format(
         "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse " ..
         "WHERE w_id = %d AND c_w_id = w_id AND c_d_id = %d AND c_id = %d", home, d, c))
      local o = workload.number(con, string.format(
         "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = %d AND d_id = %d FOR UPDATE", home, d))
      con:query(string.format("UPDATE district SET d_next_o_id = %d WHERE d_w_id = %d AND d_id = %d", o + 1, home, d))
      con:query(string.format("INSERT INTO orders VALUES (%d,%d,%d,%d,NOW(),NULL,%d,%d)", o, d, home, c, number, all_local))
      con:query(string.format("INSERT INTO new_order VALUES (%d,%d,%d)", o, d, home))
      for line, about in ipairs(lines) do
         local price = workload.number(con, string.format(
            "SELECT i_price, i_name, i_data FROM item WHERE i_id = %d", about.item))
         if not price then
            return ROLLBACK
         end
         local stock = con:query(string.format(
            "SELECT s_quantity, s_dist_%02d, s_data FROM stock WHERE s_i_id = %d AND s_w_id = %d FOR UPDATE", d,
            about.item, about.supply)):fetch_row()
         local left = tonumber(stock[1]) - about.quantity
         if left < 10 then
            left = left + 91
         end
         con:query(string.format(
            "UPDATE stock SET s_quantity = %d, s_ytd = s_ytd + %d, s_order_cnt = s_order_cnt + 1, " ..
            "s_remote_cnt = s_remote_cnt + %d WHERE s_i_id = %d AND s_w_id = %d", left, about.quantity,
            about.supply ~= home and 1 or 0, about.item, about.supply))
         con:query(string.format("INSERT INTO order_line VALUES (%d,%d,%d,%d,%d,%d,NULL,%d,%.2f,'%s')", o, d, home, line,
            about.item, about.supply, about.quantity, about.quantity * price, stock[2]))
      end
   end)
end

-- 2.5: a customer pays; 15 in a hundred live in another warehouse's district.
local function payment(con, home)
   local d, amount = workload.between(1, random.DISTRICTS), workload.between(100, 500000) / 100
   local cw, cd = home, d
   if workload.between(1, 100) > 85 then
      cw, cd = other_warehouse(home), workload.between(1, random.DISTRICTS)
   end
   transaction(con, function()
      con:query(string.format("UPDATE warehouse SET w_ytd = w_ytd + %.2f WHERE w_id = %d", amount, home))
      con:query(string.format("SELECT w_street_1, w_street_2, w_city, w_state, w_zip, w_name FROM warehouse WHERE w_id = %d", home))
      con:query(string.format("UPDATE district SET d_ytd = d_ytd + %.2f WHERE d_w_id = %d AND d_id = %d", amount, home, d))
      con:query(string.format(
         "SELECT d_street_1, d_street_2, d_city, d_state, d_zip, d_name FROM district WHERE d_w_id = %d AND d_id = %d", home, d))
      local c = some_customer(con, cw, cd)
      local credit = con:query(string.format(
         "SELECT c_credit, c_first, c_last, c_balance, c_discount FROM customer " ..
         "WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d FOR UPDATE", cw, cd, c)):fetch_row()[1]
      local data = ""
      if credit == "BC" then
         data = string.format(", c_data = LEFT(CONCAT('%d %d %d %d %d %.2f ', c_data), 500)", c, cd, cw, d, home, amount)
      end
      con:query(string.format(
         "UPDATE customer SET c_balance = c_balance - %.2f, c_ytd_payment = c_ytd_payment + %.2f, " ..
         "c_payment_cnt = c_payment_cnt + 1%s WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", amount, amount, data, cw, cd, c))
      con:query(string.format(
         "INSERT INTO history (h_c_id,h_c_d_id,h_c_w_id,h_d_id,h_w_id,h_date,h_amount,h_data) " ..
         "VALUES (%d,%d,%d,%d,%d,NOW(),%.2f,'%s')", c, cd, cw, d, home, amount, random.text(12, 24)))
   end)
end

-- 2.6: a customer's last order.
local function order_status(con, home)
   local d = workload.between(1, random.DISTRICTS)
   transaction(con, function()
      local c = some_customer(con, home, d)
      con:query(string.format(
         "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", home, d, c))
      local o = workload.number(con, string.format(
         "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = %d AND o_d_id = %d AND o_c_id = %d " ..
         "ORDER BY o_id DESC LIMIT 1", home, d, c))
      con:query(string.format(
         "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line " ..
         "WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %d", home, d, o))
   end)
end

-- The condition that names an order's rows of a table whose columns begin with `prefix`.
local function of_order(prefix, w, d, o)
   return string.format("%s_w_id = %d AND %s_d_id = %d AND %s_o_id = %d", prefix, w, prefix, d, prefix, o)
end

-- 2.7: the oldest new order of each district is delivered.
local function delivery(con, home)
   local carrier = workload.between(1, 10)
   transaction(con, function()
      for d = 1, random.DISTRICTS do
         local o = workload.number(con, string.format(
            "SELECT no_o_id FROM new_order WHERE no_w_id = %d AND no_d_id = %d ORDER BY no_o_id LIMIT 1 FOR UPDATE", home, d))
         if o then
            local lines = of_order("ol", home, d, o)
            con:query("DELETE FROM new_order WHERE " .. of_order("no", home, d, o))
            local order = string.format("o_w_id = %d AND o_d_id = %d AND o_id = %d", home, d, o)
            local c = workload.number(con, "SELECT o_c_id FROM orders WHERE " .. order .. " FOR UPDATE")
            con:query(string.format("UPDATE orders SET o_carrier_id = %d WHERE %s", carrier, order))
            con:query("UPDATE order_line SET ol_delivery_d = NOW() WHERE " .. lines)
            local sum = con:query_row("SELECT SUM(ol_amount) FROM order_line WHERE " .. lines)
            con:query(string.format(
               "UPDATE customer SET c_balance = c_balance + %s, c_delivery_cnt = c_delivery_cnt + 1 " ..
               "WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", sum, home, d, c))
         end
      end
   end)
end

-- 2.8: how many items of a district's last 20 orders are nearly sold out.
local function stock_level(con, home)
   local d, threshold = workload.between(1, random.DISTRICTS), workload.between(10, 20)
   transaction(con, function()
      local next_o = workload.number(con, string.format(
         "SELECT d_next_o_id FROM district WHERE d_w_id = %d AND d_id = %d", home, d))
      con:query(string.format(
         "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id < %d " ..
         "AND ol_o_id >= %d AND s_w_id = %d AND s_i_id = ol_i_id AND s_quantity < %d", home, d, next_o, next_o - 20, home,
         threshold))
   end)
end

-- A terminal, each of whose transactions is at the warehouse that `home` gives: its transactions by name.
function M.terminal(con, home)
   local terminal = {}
   for name, work in pairs({ new_order = new_order, payment = payment, order_status = order_status, delivery = delivery,
      stock_level = stock_level }) do
      terminal[name] = function()
         work(con, home())
      end
   end
   return terminal
end

return M
