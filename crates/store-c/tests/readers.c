/* A store that one process writes and another one reads: readers DIRECTORY. */
#define _POSIX_C_SOURCE 200809L
#include <forebay/store.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 20

static void check(char *error) {
    if (!error) return;
    fprintf(stderr, "%s\n", error);
    exit(1);
}

/* Ends the program unless there was an error with these words. */
static void refused(char **error, const char *words) {
    if (!*error || !strstr(*error, words)) {
        fprintf(stderr, "\"%s\", not \"%s\"\n", *error ? *error : "no error", words);
        exit(1);
    }
    forebay_free(*error);
    *error = NULL;
}

static void expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* Puts what each byte says, and answers. */
static int own(const forebay_options_t *options, const char *name, int told, int answers) {
    char *error = NULL;
    char round, key[16], value[500];
    forebay_writeoptions_t *synced = forebay_writeoptions_create();
    forebay_t *db = forebay_open(options, name, &error);
    check(error);
    while (read(told, &round, 1) == 1) {
        memset(value, round, sizeof value);
        for (int i = 0; i < 200; i++) {
            snprintf(key, sizeof key, "%03d", i);
            forebay_put(db, synced, key, strlen(key), value, sizeof value, &error);
            check(error);
        }
        forebay_refresh(db, &error);
        check(error);
        if (write(answers, &round, 1) != 1) return 1;
    }
    forebay_close_checked(db, &error);
    check(error);
    forebay_writeoptions_destroy(synced);
    return 0;
}

/* Every key has that round's value. */
static void look(forebay_t *db, const forebay_readoptions_t *as_of, char round) {
    char *error = NULL;
    size_t len, keys = 0;
    forebay_iterator_t *at = forebay_create_iterator(db, as_of, &error);
    check(error);
    for (forebay_iter_seek_to_first(at); forebay_iter_valid(at); forebay_iter_next(at)) {
        const char *value = forebay_iter_value(at, &len);
        expect(len == 500 && value[0] == round && value[499] == round, "another value");
        keys++;
    }
    forebay_iter_get_error(at, &error);
    check(error);
    forebay_iter_destroy(at);
    expect(keys == 200, "another number of keys");
    char *value = forebay_get(db, as_of, "199", 3, &len, &error);
    check(error);
    expect(value && len == 500 && value[0] == round, "another value by its key");
    forebay_free(value);
}

static void read_beside(const forebay_options_t *options, const char *name, int tells, int answered) {
    char *error = NULL, answer;
    forebay_readoptions_t *now = forebay_readoptions_create();
    forebay_readoptions_t *before = forebay_readoptions_create();
    forebay_writeoptions_t *synced = forebay_writeoptions_create();
    forebay_t *db = forebay_open_for_read_only(options, name, &error);
    expect(!db, "a store that is not there was opened");
    refused(&error, "holds no store");
    const forebay_snapshot_t *snapshot = NULL;
    for (char round = 1; round <= ROUNDS; round++) {
        expect(write(tells, &round, 1) == 1 && read(answered, &answer, 1) == 1, "the owner ended");
        if (!db) {
            expect(!forebay_open(options, name, &error), "it was opened twice");
            refused(&error, "in use by another process");
            db = forebay_open_for_read_only(options, name, &error);
            check(error);
            snapshot = forebay_create_snapshot(db, &error);
            check(error);
            forebay_readoptions_set_snapshot(before, snapshot);
        } else {
            look(db, now, round - 1);
            forebay_refresh(db, &error);
            check(error);
        }
        look(db, now, round);
        look(db, before, 1);
    }
    forebay_put(db, synced, "k", 1, "v", 1, &error);
    refused(&error, "for reading alone");
    forebay_checkpoint(db, "nowhere", &error);
    refused(&error, "for reading alone");
    char *stats = forebay_property_value(db, "forebay.stats");
    expect(stats && strstr(stats, "log_tail"), "no stats");
    forebay_free(stats);
    forebay_release_snapshot(db, snapshot);
    forebay_close_checked(db, &error);
    check(error);
    forebay_readoptions_destroy(now);
    forebay_readoptions_destroy(before);
    forebay_writeoptions_destroy(synced);
}

int main(int argc, char **argv) {
    int to_owner[2], from_owner[2], status;
    expect(argc == 2 && !pipe(to_owner) && !pipe(from_owner), "usage: readers DIRECTORY");
    forebay_options_t *options = forebay_options_create();
    forebay_options_set_create_if_missing(options, 1);
    pid_t owner = fork();
    expect(owner >= 0, "no process");
    if (!owner) {
        close(to_owner[1]);
        close(from_owner[0]);
        status = own(options, argv[1], to_owner[0], from_owner[1]);
        forebay_options_destroy(options);
        return status;
    }
    close(to_owner[0]);
    close(from_owner[1]);
    read_beside(options, argv[1], to_owner[1], from_owner[0]);
    close(to_owner[1]);
    expect(waitpid(owner, &status, 0) == owner && status == 0, "the owner failed");
    forebay_options_destroy(options);
    printf("read as it was written\n");
    return 0;
}
