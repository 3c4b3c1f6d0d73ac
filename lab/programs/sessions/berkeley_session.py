"""Berkeley DB inside Python: a key for each number, each a transaction."""

import sys

from bsddb3 import db
from protocol import PAYLOAD, serve


class Store:
    def __init__(self, directory: str):
        self.environment = db.DBEnv()
        subsystems = db.DB_INIT_TXN | db.DB_INIT_LOG | db.DB_INIT_MPOOL | db.DB_INIT_LOCK
        self.environment.open(directory, db.DB_CREATE | db.DB_RECOVER | subsystems)
        self.table = db.DB(self.environment)
        self.table.open("lab.db", dbtype=db.DB_BTREE, flags=db.DB_CREATE | db.DB_AUTO_COMMIT)

    def write(self, number: int) -> None:
        transaction = self.environment.txn_begin()
        self.table.put(str(number).encode(), PAYLOAD.encode(), txn=transaction)
        transaction.commit(db.DB_TXN_SYNC)

    def numbers(self) -> list[int]:
        return [int(key) for key in self.table.keys()]


serve(Store(sys.argv[1]))
