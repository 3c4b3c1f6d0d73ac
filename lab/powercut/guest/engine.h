/* What server.c serves: a database that applies transactions durably. One of rocksdb.c and sqlite.c is linked. */
#include <stddef.h>

struct change {
    const char *key;
    size_t key_length;
    const char *value; /* NULL: the key is deleted */
    size_t value_length;
};

/* Each ends the program with a message if the database fails: the lab then looks at what is left of it. */
void engine_open(const char *directory);
/* All of them or none, durable when it returns. */
void engine_apply(const struct change *changes, size_t count);
/* A copy of the value, or NULL. */
char *engine_get(const char *key, size_t key_length, size_t *value_length);
long engine_count(void);

void die(const char *what, const char *why);
