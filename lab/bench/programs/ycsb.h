/* What the driver of `forebay-lab ycsb` (ycsb/driver.rs) asks of a store in C, each of which is a library that forebay-peers loads
 * (peers/src/native.rs). Built with cc when it is needed (peers.rs).
 *
 * Any thread may call any of these. What goes wrong is said on standard error, and ends the process.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opens a new store in an empty directory. With `synced` 1 each put is durable when it returns. With `apart` 1 values are stored apart
 * from keys, where the store can do that. */
void *ycsb_open(const char *dir, int synced, int apart, uint64_t cache_bytes);

/* Puts `pairs` pairs whose keys, and whose values, lie one behind the other. They need not be durable before ycsb_sync. */
void ycsb_load(void *store, size_t pairs, const char *keys, size_t key_bytes, const char *values, size_t value_bytes);

void ycsb_put(void *store, const char *key, size_t key_bytes, const char *value, size_t value_bytes);

/* Copies the first `room` bytes of a value, and returns how many it has; -1 if there is none. */
int64_t ycsb_get(void *store, const char *key, size_t key_bytes, char *value, size_t room);

/* Reads `records` records from this key on, and copies the first `room` bytes of each value. Returns how many there were, and in
 * `bytes` the bytes of their keys and values. */
uint64_t ycsb_scan(void *store, const char *key, size_t key_bytes, uint64_t records, char *value, size_t room, uint64_t *bytes);

/* Makes durable all that was put. */
void ycsb_sync(void *store);

void ycsb_close(void *store);

static size_t copy_value(char *to, size_t room, const void *value, size_t bytes) {
    memcpy(to, value, bytes < room ? bytes : room);
    return bytes;
}
