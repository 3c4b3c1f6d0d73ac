"""Berkeley DB inside Python: a key for each number, each a transaction. With a second argument, files of its log have so many bytes."""

import sys

from bsddb3 import db
from protocol import PAYLOAD, serve


class Store:
    def __init__(self, directory: str, log_bytes: str = "0"):
        self.environment = db.DBEnv()
        self.is_small = log_bytes != "0"
        if self.is_small:
            self.environment.set_lg_bsize(int(log_bytes) // 8)
            self.environment.set_lg_max(int(log_bytes))
            # Files that no recovery needs are removed.
            self.environment.log_set_config(db.DB_LOG_AUTO_REMOVE, True)
        subsystems = db.DB_INIT_TXN | db.DB_INIT_LOG | db.DB_INIT_MPOOL | db.DB_INIT_LOCK
        self.environment.open(directory, db.DB_CREATE | db.DB_RECOVER | subsystems)
        self.table = db.DB(self.environment)
        self.table.open("lab.db", dbtype=db.DB_BTREE, flags=db.DB_CREATE | db.DB_AUTO_COMMIT)

    def write(self, number: int) -> None:
        transaction = self.environment.txn_begin()
        self.table.put(str(number).encode(), PAYLOAD.encode(), txn=transaction)
        transaction.commit(db.DB_TXN_SYNC)
        if self.is_small and number % 500 == 0:
            self.environment.txn_checkpoint()

    def numbers(self) -> list[int]:
        return [int(key) for key in self.table.keys()]


serve(Store(*sys.argv[1:]))
