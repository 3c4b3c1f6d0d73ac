/* A module of Valkey: a type of its own, a set of numbers, whose commands reach the append-only file in each of a module's ways.
 *
 *   NUMBERS.ADD KEY NUMBER PAYLOAD   adds it; which way, the number says
 *   NUMBERS.ALL KEY                  all that are there
 *
 * With a second argument at its loading, a file's name, it opens that file and writes to it by the C library, as many a module does
 * with a log of its own.
 */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "valkeymodule.h"

#define WAYS 4

typedef struct {
    size_t count, room;
    long long *all;
} Numbers;

typedef struct {
    ValkeyModuleBlockedClient *client;
    ValkeyModuleString *key, *number, *payload;
} Later;

static ValkeyModuleType *numbers_type;
static int own_log = -1;

static void add(Numbers *numbers, long long number) {
    if (numbers->count == numbers->room) {
        numbers->room = numbers->room ? 2 * numbers->room : 64;
        numbers->all = ValkeyModule_Realloc(numbers->all, numbers->room * sizeof(long long));
    }
    numbers->all[numbers->count++] = number;
    if (own_log >= 0 && write(own_log, ".", 1) != 1) {
        abort();
    }
}

/* The numbers of a key, which is made if there is none. */
static Numbers *open_numbers(ValkeyModuleCtx *ctx, ValkeyModuleString *name) {
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, name, VALKEYMODULE_READ | VALKEYMODULE_WRITE);
    Numbers *numbers = NULL;
    if (ValkeyModule_KeyType(key) == VALKEYMODULE_KEYTYPE_EMPTY) {
        numbers = ValkeyModule_Calloc(1, sizeof(Numbers));
        ValkeyModule_ModuleTypeSetValue(key, numbers_type, numbers);
    } else if (ValkeyModule_ModuleTypeGetType(key) == numbers_type) {
        numbers = ValkeyModule_ModuleTypeGetValue(key);
    }
    ValkeyModule_CloseKey(key);
    return numbers;
}

/* In a thread of the module's own, with the server's lock. */
static void *add_later(void *argument) {
    Later *later = argument;
    long long number = 0;
    ValkeyModuleCtx *ctx = ValkeyModule_GetThreadSafeContext(later->client);
    ValkeyModule_ThreadSafeContextLock(ctx);
    Numbers *numbers = open_numbers(ctx, later->key);
    if (numbers == NULL || ValkeyModule_StringToLongLong(later->number, &number) != VALKEYMODULE_OK) {
        ValkeyModule_ReplyWithError(ctx, "ERR no numbers");
    } else {
        add(numbers, number);
        ValkeyModule_Replicate(ctx, "NUMBERS.ADD", "sss", later->key, later->number, later->payload);
        ValkeyModule_ReplyWithSimpleString(ctx, "OK");
    }
    ValkeyModule_FreeString(ctx, later->key);
    ValkeyModule_FreeString(ctx, later->number);
    ValkeyModule_FreeString(ctx, later->payload);
    ValkeyModule_ThreadSafeContextUnlock(ctx);
    ValkeyModule_UnblockClient(later->client, NULL);
    ValkeyModule_FreeThreadSafeContext(ctx);
    ValkeyModule_Free(later);
    return NULL;
}

static int begin_thread(ValkeyModuleCtx *ctx, ValkeyModuleString **words) {
    pthread_t thread;
    Later *later = ValkeyModule_Alloc(sizeof(Later));
    ValkeyModuleString **kept[] = {&later->key, &later->number, &later->payload};
    for (int at = 0; at < 3; at++) {
        *kept[at] = words[at + 1];
        ValkeyModule_RetainString(ctx, words[at + 1]);
    }
    later->client = ValkeyModule_BlockClient(ctx, NULL, NULL, NULL, 0);
    if (pthread_create(&thread, NULL, add_later, later) != 0) {
        abort();
    }
    pthread_detach(thread);
    return VALKEYMODULE_OK;
}

static int add_command(ValkeyModuleCtx *ctx, ValkeyModuleString **words, int count) {
    long long number;
    if (count != 4) {
        return ValkeyModule_WrongArity(ctx);
    }
    if (ValkeyModule_StringToLongLong(words[2], &number) != VALKEYMODULE_OK) {
        return ValkeyModule_ReplyWithError(ctx, "ERR no number");
    }
    /* A client that reads the append-only file cannot be blocked. */
    int is_a_clients = !(ValkeyModule_GetContextFlags(ctx) & (VALKEYMODULE_CTX_FLAGS_LOADING | VALKEYMODULE_CTX_FLAGS_DENY_BLOCKING));
    if (number % WAYS == 3 && is_a_clients) {
        return begin_thread(ctx, words);
    }
    Numbers *numbers = open_numbers(ctx, words[1]);
    if (numbers == NULL) {
        return ValkeyModule_ReplyWithError(ctx, VALKEYMODULE_ERRORMSG_WRONGTYPE);
    }
    add(numbers, number);
    switch (number % WAYS) {
    case 1:
        ValkeyModule_Replicate(ctx, "NUMBERS.ADD", "sss", words[1], words[2], words[3]);
        break;
    case 2:
        /* A transaction: the command, and one of the server's that it calls. */
        ValkeyModule_FreeCallReply(ValkeyModule_Call(ctx, "SET", "!cs", "last", words[2]));
        ValkeyModule_Replicate(ctx, "NUMBERS.ADD", "sss", words[1], words[2], words[3]);
        break;
    default:
        ValkeyModule_ReplicateVerbatim(ctx);
    }
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

static int all_command(ValkeyModuleCtx *ctx, ValkeyModuleString **words, int count) {
    if (count != 2) {
        return ValkeyModule_WrongArity(ctx);
    }
    Numbers *numbers = open_numbers(ctx, words[1]);
    if (numbers == NULL) {
        return ValkeyModule_ReplyWithError(ctx, VALKEYMODULE_ERRORMSG_WRONGTYPE);
    }
    ValkeyModule_ReplyWithArray(ctx, numbers->count);
    for (size_t at = 0; at < numbers->count; at++) {
        ValkeyModuleString *text = ValkeyModule_CreateStringFromLongLong(ctx, numbers->all[at]);
        ValkeyModule_ReplyWithString(ctx, text);
        ValkeyModule_FreeString(ctx, text);
    }
    return VALKEYMODULE_OK;
}

/* Into the file with which an append-only file begins. */
static void save(ValkeyModuleIO *io, void *value) {
    Numbers *numbers = value;
    ValkeyModule_SaveUnsigned(io, numbers->count);
    for (size_t at = 0; at < numbers->count; at++) {
        ValkeyModule_SaveSigned(io, numbers->all[at]);
    }
}

static void *load(ValkeyModuleIO *io, int version) {
    if (version != 0) {
        return NULL;
    }
    Numbers *numbers = ValkeyModule_Calloc(1, sizeof(Numbers));
    for (uint64_t left = ValkeyModule_LoadUnsigned(io); left > 0; left--) {
        add(numbers, ValkeyModule_LoadSigned(io));
    }
    return numbers;
}

static void rewrite(ValkeyModuleIO *io, ValkeyModuleString *key, void *value) {
    Numbers *numbers = value;
    for (size_t at = 0; at < numbers->count; at++) {
        ValkeyModule_EmitAOF(io, "NUMBERS.ADD", "slc", key, numbers->all[at], "");
    }
}

static void drop(void *value) {
    Numbers *numbers = value;
    ValkeyModule_Free(numbers->all);
    ValkeyModule_Free(numbers);
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **words, int count) {
    if (ValkeyModule_Init(ctx, "numbers", 1, VALKEYMODULE_APIVER_1) != VALKEYMODULE_OK) {
        return VALKEYMODULE_ERR;
    }
    ValkeyModuleTypeMethods methods = {
        .version = VALKEYMODULE_TYPE_METHOD_VERSION,
        .rdb_load = load,
        .rdb_save = save,
        .aof_rewrite = rewrite,
        .free = drop,
    };
    if (count > 0) {
        size_t length;
        own_log = open(ValkeyModule_StringPtrLen(words[0], &length), O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (own_log < 0) {
            return VALKEYMODULE_ERR;
        }
    }
    numbers_type = ValkeyModule_CreateDataType(ctx, "numbersFB", 0, &methods);
    if (numbers_type == NULL || ValkeyModule_CreateCommand(ctx, "NUMBERS.ADD", add_command, "write", 1, 1, 1) != VALKEYMODULE_OK) {
        return VALKEYMODULE_ERR;
    }
    return ValkeyModule_CreateCommand(ctx, "NUMBERS.ALL", all_command, "write", 1, 1, 1);
}
