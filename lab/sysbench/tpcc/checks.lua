-- TPC-C's consistency conditions (clause 3.3.2). Each query counts what violates one.

local workload = require("workload")

local M = {}

local CONDITIONS = {
   { "3.3.2.1 a warehouse's sum is that of its districts",
      [[SELECT COUNT(*) FROM warehouse JOIN (SELECT d_w_id, SUM(d_ytd) s FROM district GROUP BY d_w_id) d ON d_w_id = w_id
        WHERE w_ytd <> s]] },
   { "3.3.2.2 the next order's number follows the last order and the last new order",
      [[SELECT COUNT(*) FROM district
        JOIN (SELECT o_w_id, o_d_id, MAX(o_id) o FROM orders GROUP BY o_w_id, o_d_id) a ON o_w_id = d_w_id AND o_d_id = d_id
        LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) n FROM new_order GROUP BY no_w_id, no_d_id) b
        ON no_w_id = d_w_id AND no_d_id = d_id WHERE d_next_o_id - 1 <> o OR n <> o]] },
   { "3.3.2.3 a district's new orders have no gaps",
      [[SELECT COUNT(*) FROM (SELECT MAX(no_o_id) - MIN(no_o_id) + 1 - COUNT(*) gaps FROM new_order
        GROUP BY no_w_id, no_d_id) n WHERE gaps <> 0]] },
   { "3.3.2.4 a district's orders have as many lines as they say",
      [[SELECT COUNT(*) FROM (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) s FROM orders GROUP BY o_w_id, o_d_id) o
        JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) n FROM order_line GROUP BY ol_w_id, ol_d_id) l
        ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE s <> n]] },
   { "3.3.2.5 an order without a carrier is a new order, and no other is",
      [[SELECT COUNT(*) FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
        WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)]] },
   { "3.3.2.6 an order has as many lines as it says",
      [[SELECT COUNT(*) FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) n FROM order_line
        GROUP BY ol_w_id, ol_d_id, ol_o_id) l ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
        WHERE n IS NULL OR n <> o_ol_cnt]] },
   { "3.3.2.7 a line is delivered if its order has a carrier, and otherwise not",
      [[SELECT COUNT(*) FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
        WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)]] },
   { "3.3.2.8 a warehouse's sum is that of its history",
      [[SELECT COUNT(*) FROM warehouse JOIN (SELECT h_w_id, SUM(h_amount) s FROM history GROUP BY h_w_id) h ON h_w_id = w_id
        WHERE w_ytd <> s]] },
   { "3.3.2.9 a district's sum is that of its history",
      [[SELECT COUNT(*) FROM district JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) s FROM history GROUP BY h_w_id, h_d_id) h
        ON h_w_id = d_w_id AND h_d_id = d_id WHERE d_ytd <> s]] },
   { "3.3.2.10 a customer's balance is what was delivered less what was paid",
      [[SELECT COUNT(*) FROM customer
        LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) s FROM orders JOIN order_line ON ol_w_id = o_w_id
        AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) o
        ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
        JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) p FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id) h
        ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id WHERE c_balance <> COALESCE(s, 0) - p]] },
}

-- Prints each condition and whether it holds; fails if one does not.
function M.check()
   local con = sysbench.sql.driver():connect()
   local failed = 0
   for _, condition in ipairs(CONDITIONS) do
      local violations = workload.number(con, condition[2])
      print(string.format("%s: %s", condition[1], violations == 0 and "holds" or violations .. " violations"))
      failed = failed + (violations == 0 and 0 or 1)
   end
   con:disconnect()
   assert(failed == 0, failed .. " of TPC-C's consistency conditions do not hold")
end

return M
