#ifndef FOREBAY_STORE_H
#define FOREBAY_STORE_H

/* Written by scripts/store_c.sh --header from crates/store-c/src: change that. */

#include <stddef.h>
#include <stdint.h>

/*
 * An embedded key-value store: docs/store-c.md. The names and their order are those of leveldb/c.h,
 * and so are the conventions:
 *
 * Pointers. None may be NULL where nothing else is said; a key or value of 0 bytes may be. What is
 * passed in is read before the call returns, and stays the caller's; a string ends with a zero.
 * What ..._create, forebay_open... and forebay_create_... return is the caller's, and goes back once to
 * the function that ends it: ..._destroy, forebay_close, forebay_release_snapshot; NULL there does
 * nothing. Memory that is returned as char* is the caller's, and goes back by free() or
 * forebay_free(). Memory that is returned as const char* is the iterator's, until it is moved.
 *
 * Errors. errptr points to NULL, or to memory of malloc(). On success it stays as it is; on failure
 * what it points to is freed, and it points to a message, which goes back by forebay_free(). The
 * message says what was found and what to do.
 *
 * Threads. A forebay_t may be used by any number of threads at a time, and so may options of reads
 * and writes that no thread changes meanwhile. Everything else by one at a time. forebay_close must
 * be the last call on a store; iterators and snapshots of it may be destroyed later.
 *
 * Processes. A store is the process's that opened it. In a child of fork() every call fails with a
 * message. A fault of the library ends the process, as a crash does, which loses nothing that was
 * acknowledged: nothing unwinds into C or C++.
 */

/**
 * A pool on an ordinary disk: a synced write costs one write to it, and survives a power cut.
 */
#define FOREBAY_POOL_DISK 0

/**
 * A pool on persistent memory (DAX): a write costs a memory copy, and survives a power cut.
 */
#define FOREBAY_POOL_MEMORY 1

/**
 * A pool in ordinary memory: a write costs a memory copy, and survives the process alone.
 */
#define FOREBAY_POOL_EMULATED 2

/**
 * A place among the keys of a store as of when it was created, or of a snapshot.
 */
typedef struct forebay_iterator_t forebay_iterator_t;

/**
 * Options to open a store.
 */
typedef struct forebay_options_t forebay_options_t;

/**
 * Options of a read.
 */
typedef struct forebay_readoptions_t forebay_readoptions_t;

/**
 * A view of a store that later writes leave as it is.
 */
typedef struct forebay_snapshot_t forebay_snapshot_t;

/**
 * An open store.
 */
typedef struct forebay_t forebay_t;

/**
 * Puts and deletes that are done as one.
 */
typedef struct forebay_writebatch_t forebay_writebatch_t;

/**
 * Options of a write.
 */
typedef struct forebay_writeoptions_t forebay_writeoptions_t;

/**
 * Called by a batch for each put that it has.
 */
typedef void (*forebay_put_fn)(void *state,
                               const char *key,
                               size_t keylen,
                               const char *val,
                               size_t vallen);

/**
 * The same for a delete.
 */
typedef void (*forebay_deleted_fn)(void *state, const char *key, size_t keylen);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * An empty batch.
 */
forebay_writebatch_t *forebay_writebatch_create(void);

/**
 * Ends it.
 */
void forebay_writebatch_destroy(forebay_writebatch_t *batch);

/**
 * Empties it.
 */
void forebay_writebatch_clear(forebay_writebatch_t *batch);

/**
 * Adds a put. Of several on a key the last one counts. What is not possible is said by
 * forebay_write.
 */
void forebay_writebatch_put(forebay_writebatch_t *batch,
                            const char *key,
                            size_t klen,
                            const char *val,
                            size_t vlen);

/**
 * Adds a delete.
 */
void forebay_writebatch_delete(forebay_writebatch_t *batch, const char *key, size_t klen);

/**
 * Calls put or deleted for each operation, in order. They may not change the batch.
 */
void forebay_writebatch_iterate(const forebay_writebatch_t *batch,
                                void *state,
                                forebay_put_fn put,
                                forebay_deleted_fn deleted);

/**
 * Adds all that source has to destination, which is another batch.
 */
void forebay_writebatch_append(forebay_writebatch_t *destination,
                               const forebay_writebatch_t *source);

/**
 * An iterator, at no key yet. NULL on failure.
 */
forebay_iterator_t *forebay_create_iterator(forebay_t *db,
                                            const forebay_readoptions_t *options,
                                            char **errptr);

/**
 * Ends it.
 */
void forebay_iter_destroy(forebay_iterator_t *iter);

/**
 * 1 if it is at a key.
 */
uint8_t forebay_iter_valid(const forebay_iterator_t *iter);

/**
 * Goes to the first key.
 */
void forebay_iter_seek_to_first(forebay_iterator_t *iter);

/**
 * Goes to the last key.
 */
void forebay_iter_seek_to_last(forebay_iterator_t *iter);

/**
 * Goes to the first key that is k or behind it.
 */
void forebay_iter_seek(forebay_iterator_t *iter, const char *k, size_t klen);

/**
 * Goes to the last key that is k or before it.
 */
void forebay_iter_seek_for_prev(forebay_iterator_t *iter, const char *k, size_t klen);

/**
 * Goes to the next key; behind the last one it is at none, and stays there.
 */
void forebay_iter_next(forebay_iterator_t *iter);

/**
 * Goes to the key before; before the first one it is at none, and stays there.
 */
void forebay_iter_prev(forebay_iterator_t *iter);

/**
 * The key that it is at, the iterator's until it is moved or destroyed; NULL at none.
 */
const char *forebay_iter_key(const forebay_iterator_t *iter, size_t *klen);

/**
 * The value of that key, likewise.
 */
const char *forebay_iter_value(const forebay_iterator_t *iter, size_t *vlen);

/**
 * Says what went wrong since the last seek: the iterator is at no key then.
 */
void forebay_iter_get_error(const forebay_iterator_t *iter, char **errptr);

/**
 * Frees what this library returned as char*. NULL does nothing.
 */
void forebay_free(void *ptr);

/**
 * Major version of the library.
 */
int forebay_major_version(void);

/**
 * Minor version of the library.
 */
int forebay_minor_version(void);

/**
 * Version of the library, as text that stays.
 */
const char *forebay_version(void);

/**
 * The defaults: a pool on a disk, no store is made.
 */
forebay_options_t *forebay_options_create(void);

/**
 * Ends options; the stores that were opened with them go on.
 */
void forebay_options_destroy(forebay_options_t *options);

/**
 * Make the store, and its pool, if there is none. Default: 0.
 */
void forebay_options_set_create_if_missing(forebay_options_t *options, uint8_t create);

/**
 * A store that exists is an error. Default: 0.
 */
void forebay_options_set_error_if_exists(forebay_options_t *options, uint8_t error_if_exists);

/**
 * The pool's path. NULL, the default: the file pool in the directory of the store's name.
 */
void forebay_options_set_pool(forebay_options_t *options, const char *pool, char **errptr);

/**
 * Sets the kind of pool that is made, and its size: FOREBAY_POOL_DISK and 67108864 (64 MiB) by
 * default. One that exists is opened as it is.
 */
void forebay_options_set_pool_kind(forebay_options_t *options,
                                   int kind,
                                   uint64_t bytes,
                                   char **errptr);

/**
 * Sets the moment at which a write is durable: "double" (the default: in two segments of the
 * pool), "single", "buffers=N" (in N segments, 1 to 64), "fsync" (without a pool: a write costs an
 * fsync), "nosync" (without a pool: a power cut loses writes that the kernel had not written).
 */
void forebay_options_set_durability(forebay_options_t *options,
                                    const char *durability,
                                    char **errptr);

/**
 * Bytes of memory for blocks of the index and values that are read often. Default: 128 MiB.
 */
void forebay_options_set_cache_size(forebay_options_t *options, uint64_t bytes);

/**
 * Bytes of memory of one of at most six tables of recent keys; at least 65536. Default: 64 MiB.
 */
void forebay_options_set_write_buffer_size(forebay_options_t *options, size_t bytes);

/**
 * Files that the store has open at a time; at least 16. Default: half of what the process may.
 */
void forebay_options_set_max_open_files(forebay_options_t *options, int files);

/**
 * Options of reads by default: of the store as it is.
 */
forebay_readoptions_t *forebay_readoptions_create(void);

/**
 * Ends them.
 */
void forebay_readoptions_destroy(forebay_readoptions_t *options);

/**
 * Read as of that snapshot, or, with NULL, of the store as it is. The options share the snapshot:
 * it may be released while they still use it.
 */
void forebay_readoptions_set_snapshot(forebay_readoptions_t *options,
                                      const forebay_snapshot_t *snapshot);

/**
 * Options of writes by default: synced.
 */
forebay_writeoptions_t *forebay_writeoptions_create(void);

/**
 * Ends them.
 */
void forebay_writeoptions_destroy(forebay_writeoptions_t *options);

/**
 * 1, the default: a write is durable when the call returns, as far as the durability and the kind
 * of the pool go. 0, on a pool on a disk: a crash of the process or of the machine may take it,
 * and what was written after it, until forebay_commit or a synced write. Elsewhere both are the
 * same.
 */
void forebay_writeoptions_set_sync(forebay_writeoptions_t *options, uint8_t sync);

/**
 * Opens the store of that name, a directory (docs/store-c.md, "Where it is"). NULL on failure.
 */
forebay_t *forebay_open(const forebay_options_t *options, const char *name, char **errptr);

/**
 * Opens the store of that name for reading alone, beside the process that has it open, or with
 * none: as of now, and then as of forebay_refresh. It needs no permission to write. Of the options
 * the pool counts, the cache and the open files. NULL on failure.
 */
forebay_t *forebay_open_for_read_only(const forebay_options_t *options,
                                      const char *name,
                                      char **errptr);

/**
 * Has a store that is only read be as of now; on failure it stays as it was. Iterators and
 * snapshots stay as they are. One that forebay_open opened is always as of now.
 */
void forebay_refresh(forebay_t *db, char **errptr);

/**
 * Closes the store as well as that goes, as leveldb_close does. Nothing that was acknowledged is
 * lost, whatever happens here: the next opening recovers it.
 */
void forebay_close(forebay_t *db);

/**
 * The same, and says what went wrong. The store is closed all the same.
 */
void forebay_close_checked(forebay_t *db, char **errptr);

/**
 * Puts a key of 1 to 65529 bytes, with a value of at most 1 GiB.
 */
void forebay_put(forebay_t *db,
                 const forebay_writeoptions_t *options,
                 const char *key,
                 size_t keylen,
                 const char *val,
                 size_t vallen,
                 char **errptr);

/**
 * Deletes a key. One that is not there is no error.
 */
void forebay_delete(forebay_t *db,
                    const forebay_writeoptions_t *options,
                    const char *key,
                    size_t keylen,
                    char **errptr);

/**
 * Does all that the batch has, or nothing. The batch stays as it is.
 */
void forebay_write(forebay_t *db,
                   const forebay_writeoptions_t *options,
                   const forebay_writebatch_t *batch,
                   char **errptr);

/**
 * Makes durable what was written before without being synced.
 */
void forebay_commit(forebay_t *db, char **errptr);

/**
 * The value of a key, and in vallen its length. NULL if there is none, and on failure.
 */
char *forebay_get(forebay_t *db,
                  const forebay_readoptions_t *options,
                  const char *key,
                  size_t keylen,
                  size_t *vallen,
                  char **errptr);

/**
 * The store as of now, for forebay_readoptions_set_snapshot. At most 1000 of different moments are
 * open at a time. NULL on failure.
 */
const forebay_snapshot_t *forebay_create_snapshot(forebay_t *db, char **errptr);

/**
 * Ends a snapshot. Iterators and read options that were given it keep what they see.
 */
void forebay_release_snapshot(forebay_t *_db, const forebay_snapshot_t *snapshot);

/**
 * A property of the store: "forebay.stats", as JSON (docs.rs, forebay_store::Stats);
 * "forebay.trouble", in words, empty if there is none. NULL for any other name.
 */
char *forebay_property_value(forebay_t *db, const char *propname);

/**
 * Bytes of the keys and values in each range, from its start to before its limit: they are read,
 * so it costs as much as iterating over them.
 */
void forebay_approximate_sizes(forebay_t *db,
                               int num_ranges,
                               const char *const *range_start_key,
                               const size_t *range_start_key_len,
                               const char *const *range_limit_key,
                               const size_t *range_limit_key_len,
                               uint64_t *sizes,
                               char **errptr);

/**
 * Collects garbage now, and waits for it: space of what was deleted and replaced comes back. The
 * store does so by itself in the background.
 */
void forebay_collect(forebay_t *db, char **errptr);

/**
 * Makes of an empty directory, or one that is not there, a store of its own with everything that
 * this one has now. No writer waits for it. forebay_open opens it by that name.
 */
void forebay_checkpoint(forebay_t *db, const char *name, char **errptr);

/**
 * Removes the store of that name, with everything in it, and its pool, unless the options name
 * one. No store is no error; a store in use, or one that does not open, is.
 */
void forebay_destroy_db(const forebay_options_t *options, const char *name, char **errptr);

/**
 * Opens a store that contradicts itself or has unreadable records, gives those up, and closes it.
 * What was given up, in words, a line each; NULL if nothing was, and on failure.
 */
char *forebay_repair_db(const forebay_options_t *options, const char *name, char **errptr);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOREBAY_STORE_H */
