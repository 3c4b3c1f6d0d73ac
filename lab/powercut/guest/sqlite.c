/* SQLite with synchronous=EXTRA: as FULL, and a rollback journal's unlinking is synced too; with FULL the last transaction may be rolled
 * back after a power cut (SQLite's documentation of the pragma; the lab sees it). The environment's LAB_JOURNAL is the journal mode. An integrity check comes first. */
#include "engine.h"
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sqlite3 *db;
static sqlite3_stmt *put, *erase, *get, *count_all;

static void check(int result, int wanted) {
    if (result != wanted)
        die("sqlite", sqlite3_errmsg(db));
}

static void run(const char *sql) { check(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK); }

static sqlite3_stmt *prepare(const char *sql) {
    sqlite3_stmt *statement;
    check(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    return statement;
}

void engine_open(const char *directory) {
    char text[256];
    snprintf(text, sizeof text, "%s/database", directory);
    check(sqlite3_open(text, &db), SQLITE_OK);
    const char *journal = getenv("LAB_JOURNAL");
    snprintf(text, sizeof text, "PRAGMA journal_mode=%s", journal != NULL ? journal : "wal");
    run(text);
    run("PRAGMA synchronous=EXTRA");
    run("PRAGMA wal_autocheckpoint=100");
    run("PRAGMA cell_size_check=ON");
    sqlite3_stmt *intact = prepare("PRAGMA integrity_check");
    check(sqlite3_step(intact), SQLITE_ROW);
    const char *verdict = (const char *)sqlite3_column_text(intact, 0);
    if (strcmp(verdict, "ok") != 0)
        die("integrity_check", verdict);
    sqlite3_finalize(intact);
    run("CREATE TABLE IF NOT EXISTS pairs (key BLOB PRIMARY KEY, value BLOB)");
    put = prepare("INSERT OR REPLACE INTO pairs VALUES (?, ?)");
    erase = prepare("DELETE FROM pairs WHERE key = ?");
    get = prepare("SELECT value FROM pairs WHERE key = ?");
    count_all = prepare("SELECT count(*) FROM pairs");
}

static void bind(sqlite3_stmt *statement, int at, const char *bytes, size_t length) {
    check(sqlite3_bind_blob(statement, at, bytes, (int)length, SQLITE_STATIC), SQLITE_OK);
}

void engine_apply(const struct change *changes, size_t count) {
    run("BEGIN IMMEDIATE");
    for (size_t i = 0; i < count; i++) {
        const struct change *c = &changes[i];
        sqlite3_stmt *statement = c->value != NULL ? put : erase;
        bind(statement, 1, c->key, c->key_length);
        if (c->value != NULL)
            bind(statement, 2, c->value, c->value_length);
        check(sqlite3_step(statement), SQLITE_DONE);
        sqlite3_reset(statement);
    }
    run("COMMIT");
}

char *engine_get(const char *key, size_t key_length, size_t *value_length) {
    char *value = NULL;
    bind(get, 1, key, key_length);
    int found = sqlite3_step(get);
    if (found == SQLITE_ROW) {
        *value_length = (size_t)sqlite3_column_bytes(get, 0);
        value = malloc(*value_length + 1);
        if (value == NULL)
            die("value", "no memory");
        if (*value_length > 0)
            memcpy(value, sqlite3_column_blob(get, 0), *value_length);
    } else {
        check(found, SQLITE_DONE);
    }
    sqlite3_reset(get);
    return value;
}

long engine_count(void) {
    check(sqlite3_step(count_all), SQLITE_ROW);
    long count = (long)sqlite3_column_int64(count_all, 0);
    sqlite3_reset(count_all);
    return count;
}
