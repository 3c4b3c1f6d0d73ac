/* WiredTiger, MongoDB's engine, inside a C program: a key for each number, each a transaction. What a session is, protocol.py says. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>

#define PAYLOAD "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static void must(int error, const char *what) {
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", what, wiredtiger_strerror(error));
        exit(1);
    }
}

static void write_numbers(WT_CURSOR *cursor, int64_t first, int64_t last) {
    for (int64_t number = first; number <= last; number++) {
        cursor->set_key(cursor, number);
        cursor->set_value(cursor, PAYLOAD);
        must(cursor->insert(cursor), "insert");
        printf("ack %" PRId64 "\n", number);
    }
}

static void read_numbers(WT_CURSOR *cursor) {
    int error;
    int64_t number;
    must(cursor->reset(cursor), "reset");
    while ((error = cursor->next(cursor)) == 0) {
        must(cursor->get_key(cursor, &number), "get_key");
        printf("%" PRId64 "\n", number);
    }
    must(error == WT_NOTFOUND ? 0 : error, "next");
    printf("end\n");
}

int main(int argc, char **argv) {
    /* As MongoDB opens it for acknowledged writes with `j: true`; small segments, so that there are several. */
    const char *settings = "create,log=(enabled,file_max=1MB),transaction_sync=(enabled=true,method=fsync),cache_size=32MB";
    WT_CONNECTION *connection;
    WT_SESSION *session;
    WT_CURSOR *cursor;
    char line[100];
    int64_t first, last;
    if (argc != 2)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    must(wiredtiger_open(argv[1], NULL, settings, &connection), "wiredtiger_open");
    must(connection->open_session(connection, NULL, NULL, &session), "open_session");
    must(session->create(session, "table:lab", "key_format=q,value_format=S"), "create");
    must(session->open_cursor(session, "table:lab", NULL, NULL, &cursor), "open_cursor");
    printf("ready\n");
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strncmp(line, "read", 4) == 0)
            read_numbers(cursor);
        else if (sscanf(line, "write %" SCNd64 " %" SCNd64, &first, &last) == 2)
            write_numbers(cursor, first, last);
    }
    must(connection->close(connection, NULL), "close");
    return 0;
}
