/* A database behind a socket, for the power-cut lab: SET, DEL, GET, DBSIZE and BATCH (S key value | D key)... in Redis's protocol, one client
 * at a time, one command after the other, each acknowledged once it is durable.
 *
 *   server DIRECTORY
 */
#include "engine.h"
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 6379, WORDS_MAX = 1024 };

struct word {
    char *bytes;
    size_t length;
};

static char *input;
static size_t filled, capacity, used;

void die(const char *what, const char *why) {
    fprintf(stderr, "server: %s: %s\n", what, why);
    exit(1);
}

/* Makes `length` bytes available behind `used`. 0 if the client is gone. */
static int need(int client, size_t length) {
    while (filled - used < length) {
        if (used + length > capacity) {
            capacity = 2 * (used + length);
            input = realloc(input, capacity);
            if (input == NULL)
                die("input", "no memory");
        }
        ssize_t got = read(client, input + filled, capacity - filled);
        if (got <= 0)
            return 0;
        filled += (size_t)got;
    }
    return 1;
}

/* The number behind `kind` on the next line; -1 if there is none. */
static long number(int client, char kind) {
    size_t length = 0;
    do {
        if (!need(client, ++length))
            return -1;
    } while (input[used + length - 1] != '\n');
    if (input[used] != kind)
        return -1;
    long value = strtol(input + used + 1, NULL, 10);
    used += length;
    return value;
}

/* The next command; how many words it has, 0 if the client is gone. The words are offsets until the command is whole. */
static size_t command(int client, struct word *words) {
    memmove(input, input + used, filled - used);
    filled -= used;
    used = 0;
    long count = number(client, '*');
    if (count < 1 || count > WORDS_MAX)
        return 0;
    size_t starts[WORDS_MAX];
    for (long i = 0; i < count; i++) {
        long length = number(client, '$');
        if (length < 0 || !need(client, (size_t)length + 2))
            return 0;
        starts[i] = used;
        words[i].length = (size_t)length;
        used += (size_t)length + 2;
    }
    for (long i = 0; i < count; i++)
        words[i].bytes = input + starts[i];
    return (size_t)count;
}

static int is(const struct word *word, const char *text) {
    return word->length == strlen(text) && strncasecmp(word->bytes, text, word->length) == 0;
}

static void answer(int client, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t sent = send(client, bytes, length, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        bytes += sent;
        length -= (size_t)sent;
    }
}

static void say(int client, const char *text) { answer(client, text, strlen(text)); }

/* Changes from words; how many, or -1. */
static long changes_of(const struct word *words, size_t count, struct change *changes) {
    if (is(&words[0], "SET") && count == 3) {
        changes[0] = (struct change){words[1].bytes, words[1].length, words[2].bytes, words[2].length};
        return 1;
    }
    if (is(&words[0], "DEL") && count == 2) {
        changes[0] = (struct change){words[1].bytes, words[1].length, NULL, 0};
        return 1;
    }
    if (!is(&words[0], "BATCH"))
        return -1;
    long found = 0;
    for (size_t at = 1; at < count;) {
        if (is(&words[at], "S") && at + 2 < count) {
            changes[found++] = (struct change){words[at + 1].bytes, words[at + 1].length, words[at + 2].bytes, words[at + 2].length};
            at += 3;
        } else if (is(&words[at], "D") && at + 1 < count) {
            changes[found++] = (struct change){words[at + 1].bytes, words[at + 1].length, NULL, 0};
            at += 2;
        } else {
            return -1;
        }
    }
    return found;
}

static void serve(int client) {
    static struct word words[WORDS_MAX];
    static struct change changes[WORDS_MAX];
    size_t count;
    filled = used = 0;
    while ((count = command(client, words)) > 0) {
        char text[64];
        if (is(&words[0], "DBSIZE")) {
            snprintf(text, sizeof text, ":%ld\r\n", engine_count());
            say(client, text);
        } else if (is(&words[0], "GET") && count == 2) {
            size_t length;
            char *value = engine_get(words[1].bytes, words[1].length, &length);
            if (value == NULL) {
                say(client, "$-1\r\n");
                continue;
            }
            snprintf(text, sizeof text, "$%zu\r\n", length);
            say(client, text);
            answer(client, value, length);
            say(client, "\r\n");
            free(value);
        } else {
            long found = changes_of(words, count, changes);
            if (found < 0) {
                say(client, "-ERR unknown command\r\n");
                continue;
            }
            engine_apply(changes, (size_t)found);
            say(client, "+OK\r\n");
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: server DIRECTORY\n");
        return 2;
    }
    engine_open(argv[1]);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    int yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(INADDR_ANY)};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 4) != 0)
        die("listen", "the port is taken");
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0)
            continue;
        serve(client);
        close(client);
    }
}
