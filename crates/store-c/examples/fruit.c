/*
 * Puts, a batch, a snapshot, an iterator, and what an error looks like.
 *
 *     cc fruit.c $(pkg-config --cflags --libs forebay-store) && ./a.out DIRECTORY
 */
#include <forebay/store.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(char *error) {
    if (!error) return;
    fprintf(stderr, "%s\n", error);
    forebay_free(error);
    exit(1);
}

static void show(forebay_t *db, const forebay_readoptions_t *as_of, const char *key) {
    char *error = NULL;
    size_t len;
    char *value = forebay_get(db, as_of, key, strlen(key), &len, &error);
    check(error);
    printf("%s: %.*s\n", key, value ? (int)len : 4, value ? value : "none");
    forebay_free(value);
}

static void list(forebay_t *db, const forebay_readoptions_t *as_of) {
    char *error = NULL;
    size_t key_len, value_len;
    forebay_iterator_t *at = forebay_create_iterator(db, as_of, &error);
    check(error);
    for (forebay_iter_seek(at, "b", 1); forebay_iter_valid(at); forebay_iter_next(at)) {
        const char *key = forebay_iter_key(at, &key_len);
        const char *value = forebay_iter_value(at, &value_len);
        printf("%.*s=%.*s ", (int)key_len, key, (int)value_len, value);
    }
    forebay_iter_get_error(at, &error);
    check(error);
    forebay_iter_destroy(at);
    printf("\n");
}

int main(int argc, char **argv) {
    char *error = NULL;
    const char *name = argc > 1 ? argv[1] : "fruit-store";
    forebay_options_t *options = forebay_options_create();
    forebay_readoptions_t *now = forebay_readoptions_create();
    forebay_readoptions_t *before = forebay_readoptions_create();
    forebay_writeoptions_t *synced = forebay_writeoptions_create();

    /* There is none yet. */
    forebay_t *db = forebay_open(options, name, &error);
    printf("%s\n", db ? "opened" : "not opened");
    forebay_free(error);
    error = NULL;

    forebay_options_set_create_if_missing(options, 1);
    db = forebay_open(options, name, &error);
    check(error);
    forebay_put(db, synced, "cherry", 6, "9", 1, &error); /* durable when it returns */
    check(error);

    forebay_writebatch_t *batch = forebay_writebatch_create();
    forebay_writebatch_put(batch, "apple", 5, "3", 1);
    forebay_writebatch_put(batch, "pear", 4, "4", 1);
    forebay_write(db, synced, batch, &error); /* both, or none */
    check(error);
    forebay_writebatch_destroy(batch);

    const forebay_snapshot_t *snapshot = forebay_create_snapshot(db, &error);
    check(error);
    forebay_readoptions_set_snapshot(before, snapshot);
    forebay_delete(db, synced, "cherry", 6, &error);
    check(error);
    show(db, now, "cherry");
    show(db, before, "cherry");
    list(db, now);
    list(db, before);
    forebay_release_snapshot(db, snapshot);

    forebay_put(db, synced, "", 0, "no key", 6, &error);
    printf("refused: %s\n", error);
    forebay_free(error);

    error = NULL;
    forebay_readoptions_destroy(before);
    forebay_close_checked(db, &error);
    check(error);
    forebay_destroy_db(options, name, &error);
    check(error);
    forebay_options_destroy(options);
    forebay_readoptions_destroy(now);
    forebay_writeoptions_destroy(synced);
    return 0;
}
