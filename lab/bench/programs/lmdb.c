/* LMDB's side of the peers in `forebay-lab wisckey`. Built with cc when it is needed (peers.rs).
 *
 *   lmdb DIR put OPS SECONDS VALUE_BYTES SEED SYNC CACHE_BYTES
 *       Puts of new 8-byte keys in random order, a transaction each, until OPS are done or SECONDS have passed (0: no such limit); then a
 *       sync. LMDB's cache is the kernel's: CACHE_BYTES is not used.
 *
 * Prints one JSON object.
 */
#define _GNU_SOURCE
#include <lmdb.h>
#include "puts.h"

/* Address space, not memory. */
#define MAP_BYTES ((size_t)256 << 30)

static void check(int code) {
    if (code != 0) {
        fprintf(stderr, "lmdb: %s\n", mdb_strerror(code));
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 9 || strcmp(argv[2], "put") != 0) {
        fprintf(stderr, "lmdb: see the comment at the top of lmdb.c for the arguments\n");
        return 2;
    }
    struct puts puts = puts_of(argv + 3);
    char bytes[KEY_BYTES], *at;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi database;
    check(mdb_env_create(&env));
    check(mdb_env_set_mapsize(env, MAP_BYTES));
    check(mdb_env_open(env, argv[1], puts.sync ? 0 : MDB_NOSYNC, 0644));
    check(mdb_txn_begin(env, NULL, 0, &txn));
    check(mdb_dbi_open(txn, NULL, 0, &database));
    check(mdb_txn_commit(txn));
    start_puts(&puts);
    while (next_put(&puts, bytes, &at)) {
        MDB_val key = {KEY_BYTES, bytes}, value = {puts.value_bytes, at};
        check(mdb_txn_begin(env, NULL, 0, &txn));
        check(mdb_put(txn, database, &key, &value, 0));
        check(mdb_txn_commit(txn));
        time_put(&puts);
    }
    check(mdb_env_sync(env, 1));
    print_puts("lmdb", &puts);
    mdb_env_close(env);
    return 0;
}
