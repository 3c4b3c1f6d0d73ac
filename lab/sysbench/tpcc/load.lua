-- Making and filling TPC-C's tables (clauses 1.3 and 4.3.3). No foreign keys: the paper's engines have none.

local workload = require("workload")
local random = require("random")

local M = {}

local ROWS_A_STATEMENT = 500

local TABLES = {
   { "warehouse", [[
      w_id INT NOT NULL, w_name VARCHAR(10), w_street_1 VARCHAR(20), w_street_2 VARCHAR(20), w_city VARCHAR(20),
      w_state CHAR(2), w_zip CHAR(9), w_tax DECIMAL(4,4), w_ytd DECIMAL(12,2), PRIMARY KEY (w_id)]] },
   { "district", [[
      d_id INT NOT NULL, d_w_id INT NOT NULL, d_name VARCHAR(10), d_street_1 VARCHAR(20), d_street_2 VARCHAR(20),
      d_city VARCHAR(20), d_state CHAR(2), d_zip CHAR(9), d_tax DECIMAL(4,4), d_ytd DECIMAL(12,2), d_next_o_id INT,
      PRIMARY KEY (d_w_id, d_id)]] },
   { "customer", [[
      c_id INT NOT NULL, c_d_id INT NOT NULL, c_w_id INT NOT NULL, c_first VARCHAR(16), c_middle CHAR(2),
      c_last VARCHAR(16), c_street_1 VARCHAR(20), c_street_2 VARCHAR(20), c_city VARCHAR(20), c_state CHAR(2),
      c_zip CHAR(9), c_phone CHAR(16), c_since DATETIME, c_credit CHAR(2), c_credit_lim DECIMAL(12,2),
      c_discount DECIMAL(4,4), c_balance DECIMAL(12,2), c_ytd_payment DECIMAL(12,2), c_payment_cnt INT,
      c_delivery_cnt INT, c_data VARCHAR(500), PRIMARY KEY (c_w_id, c_d_id, c_id),
      KEY by_name (c_w_id, c_d_id, c_last, c_first)]] },
   { "history", [[
      h_id BIGINT NOT NULL AUTO_INCREMENT, h_c_id INT, h_c_d_id INT, h_c_w_id INT, h_d_id INT, h_w_id INT,
      h_date DATETIME, h_amount DECIMAL(6,2), h_data VARCHAR(24), PRIMARY KEY (h_id)]] },
   { "orders", [[
      o_id INT NOT NULL, o_d_id INT NOT NULL, o_w_id INT NOT NULL, o_c_id INT, o_entry_d DATETIME, o_carrier_id INT,
      o_ol_cnt INT, o_all_local INT, PRIMARY KEY (o_w_id, o_d_id, o_id), KEY by_customer (o_w_id, o_d_id, o_c_id, o_id)]] },
   { "new_order", [[
      no_o_id INT NOT NULL, no_d_id INT NOT NULL, no_w_id INT NOT NULL, PRIMARY KEY (no_w_id, no_d_id, no_o_id)]] },
   { "order_line", [[
      ol_o_id INT NOT NULL, ol_d_id INT NOT NULL, ol_w_id INT NOT NULL, ol_number INT NOT NULL, ol_i_id INT,
      ol_supply_w_id INT, ol_delivery_d DATETIME, ol_quantity INT, ol_amount DECIMAL(6,2), ol_dist_info CHAR(24),
      PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)]] },
   { "item", [[
      i_id INT NOT NULL, i_im_id INT, i_name VARCHAR(24), i_price DECIMAL(5,2), i_data VARCHAR(50), PRIMARY KEY (i_id)]] },
   { "stock", [[
      s_i_id INT NOT NULL, s_w_id INT NOT NULL, s_quantity INT, s_dist_01 CHAR(24), s_dist_02 CHAR(24),
      s_dist_03 CHAR(24), s_dist_04 CHAR(24), s_dist_05 CHAR(24), s_dist_06 CHAR(24), s_dist_07 CHAR(24),
      s_dist_08 CHAR(24), s_dist_09 CHAR(24), s_dist_10 CHAR(24), s_ytd INT, s_order_cnt INT, s_remote_cnt INT,
      s_data VARCHAR(50), PRIMARY KEY (s_w_id, s_i_id)]] },
}

-- The last one made says that all are there.
local LAST = TABLES[#TABLES][1]

local function create(con)
   for _, about in ipairs(TABLES) do
      con:query(string.format("CREATE TABLE %s (%s) ENGINE=%s DEFAULT CHARSET=latin1 COLLATE=latin1_bin", about[1],
         about[2], sysbench.opt.storage_engine))
   end
end

function M.cleanup()
   local con = sysbench.sql.driver():connect()
   for _, about in ipairs(TABLES) do
      con:query("DROP TABLE IF EXISTS " .. about[1])
   end
   con:disconnect()
end

-- Inserts `row(i)` for each i from `low` to `high`, many at a time.
local function fill(con, name, columns, low, high, row)
   for from = low, high, ROWS_A_STATEMENT do
      local rows = {}
      for i = from, math.min(high, from + ROWS_A_STATEMENT - 1) do
         rows[#rows + 1] = row(i)
      end
      con:query(string.format("INSERT INTO %s (%s) VALUES %s", name, columns, table.concat(rows, ",")))
   end
end

local function address()
   return string.format("'%s','%s','%s','%s','%s'", random.text(10, 20), random.text(10, 20), random.text(10, 20),
      random.text(2, 2), random.zip())
end

local function tax()
   return workload.between(0, 2000) / 10000
end

local function items(con)
   fill(con, "item", "i_id,i_im_id,i_name,i_price,i_data", 1, random.ITEMS, function(i)
      return string.format("(%d,%d,'%s',%.2f,'%s')", i, workload.between(1, 10000), random.text(14, 24),
         workload.between(100, 10000) / 100, random.data())
   end)
end

local STOCK = "s_i_id,s_w_id,s_quantity,s_dist_01,s_dist_02,s_dist_03,s_dist_04,s_dist_05,s_dist_06,s_dist_07," ..
   "s_dist_08,s_dist_09,s_dist_10,s_ytd,s_order_cnt,s_remote_cnt,s_data"

local function stock(con, w)
   fill(con, "stock", STOCK, 1, random.ITEMS, function(i)
      local places = {}
      for d = 1, random.DISTRICTS do
         places[d] = "'" .. random.text(24, 24) .. "'"
      end
      return string.format("(%d,%d,%d,%s,0,0,0,'%s')", i, w, workload.between(10, 100), table.concat(places, ","),
         random.data())
   end)
end

local CUSTOMER = "c_id,c_d_id,c_w_id,c_first,c_middle,c_last,c_street_1,c_street_2,c_city,c_state,c_zip,c_phone," ..
   "c_since,c_credit,c_credit_lim,c_discount,c_balance,c_ytd_payment,c_payment_cnt,c_delivery_cnt,c_data"

local function customers(con, w, d)
   fill(con, "customer", CUSTOMER, 1, random.CUSTOMERS, function(c)
      return string.format("(%d,%d,%d,'%s','OE','%s',%s,'%s',NOW(),'%s',50000,%.4f,-10,10,1,0,'%s')", c, d, w,
         random.text(8, 16), random.loaded_last_name(c), address(), random.digits(16),
         workload.between(1, 10) == 1 and "BC" or "GC", workload.between(0, 5000) / 10000, random.text(300, 500))
   end)
   fill(con, "history", "h_c_id,h_c_d_id,h_c_w_id,h_d_id,h_w_id,h_date,h_amount,h_data", 1, random.CUSTOMERS, function(c)
      return string.format("(%d,%d,%d,%d,%d,NOW(),10,'%s')", c, d, w, d, w, random.text(12, 24))
   end)
end

local function orders(con, w, d)
   local customer = random.permutation(random.CUSTOMERS)
   local lines = {}
   fill(con, "orders", "o_id,o_d_id,o_w_id,o_c_id,o_entry_d,o_carrier_id,o_ol_cnt,o_all_local", 1, random.ORDERS, function(o)
      lines[o] = workload.between(5, 15)
      local carrier = o < random.FIRST_NEW_ORDER and workload.between(1, 10) or "NULL"
      return string.format("(%d,%d,%d,%d,NOW(),%s,%d,1)", o, d, w, customer[o], carrier, lines[o])
   end)
   fill(con, "new_order", "no_o_id,no_d_id,no_w_id", random.FIRST_NEW_ORDER, random.ORDERS, function(o)
      return string.format("(%d,%d,%d)", o, d, w)
   end)
   local columns = "ol_o_id,ol_d_id,ol_w_id,ol_number,ol_i_id,ol_supply_w_id,ol_delivery_d,ol_quantity,ol_amount,ol_dist_info"
   fill(con, "order_line", columns, 1, random.ORDERS, function(o)
      local rows = {}
      for line = 1, lines[o] do
         local delivered = o < random.FIRST_NEW_ORDER
         rows[line] = string.format("(%d,%d,%d,%d,%d,%d,%s,5,%.2f,'%s')", o, d, w, line,
            workload.between(1, random.ITEMS), w, delivered and "NOW()" or "NULL",
            delivered and 0 or workload.between(1, 999999) / 100, random.text(24, 24))
      end
      return table.concat(rows, ",")
   end)
end

local function warehouse(con, w)
   con:query(string.format("INSERT INTO warehouse VALUES (%d,'%s',%s,%.4f,300000)", w, random.text(6, 10), address(), tax()))
   stock(con, w)
   for d = 1, random.DISTRICTS do
      con:query(string.format("INSERT INTO district VALUES (%d,%d,'%s',%s,%.4f,30000,%d)", d, w, random.text(6, 10),
         address(), tax(), random.ORDERS + 1))
      customers(con, w, d)
      orders(con, w, d)
   end
end

-- Thread t of n loads the warehouses with id % n = t; the first one makes the tables and the items.
function M.load()
   local con = sysbench.sql.driver():connect()
   if sysbench.tid == 0 then
      create(con)
   else
      local there = string.format("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() " ..
         "AND table_name = '%s'", LAST)
      while workload.number(con, there) == 0 do
         con:query("DO SLEEP(0.05)")
      end
   end
   if sysbench.tid == 0 then
      items(con)
   end
   for w = sysbench.tid + 1, sysbench.opt.warehouses, sysbench.opt.threads do
      local begun = workload.now_us()
      warehouse(con, w)
      print(string.format("warehouse %d of %d: loaded in %.1f s", w, sysbench.opt.warehouses,
         (workload.now_us() - begun) / 1e6))
   end
   con:disconnect()
end

return M
