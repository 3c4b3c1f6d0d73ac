/* SQLite by several processes: each change is made by one of WRITERS, which take turns, and read by this one. A writer ends after TURNS changes, and
 * another begins, so that processes open and leave the database while others have it open. A writer is this program again, since a process that was
 * forked must not go on with SQLite's state; it gets changes on its standard input, and answers with a byte when they are durable. Where writers are made
 * to die, another one makes the change again: it is the same after that whether it was made before or not. */
#define engine_open sqlite_open
#define engine_apply sqlite_apply
#include "sqlite.c"
#undef engine_open
#undef engine_apply
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRITERS = 3, TURNS = 100 };

struct writer {
    pid_t process;
    FILE *changes, *answers;
    int turns;
};

static struct writer writers[WRITERS];
static unsigned turn;
static const char *directory;

static int get_bytes(void *to, size_t bytes) { return fread(to, 1, bytes, stdin) == bytes; }

/* Bytes behind their number; NULL for none. */
static char *get_text(size_t *length) {
    long bytes;
    if (!get_bytes(&bytes, sizeof bytes))
        die("writer", "half a change");
    if (bytes < 0)
        return NULL;
    char *text = malloc((size_t)bytes + 1);
    if (text == NULL || !get_bytes(text, (size_t)bytes))
        die("writer", "half a change");
    *length = (size_t)bytes;
    return text;
}

static void put_text(FILE *to, const char *text, size_t length) {
    long bytes = text != NULL ? (long)length : -1;
    fwrite(&bytes, sizeof bytes, 1, to);
    if (text != NULL)
        fwrite(text, 1, length, to);
}

static void answer(void) {
    if (write(STDOUT_FILENO, "+", 1) != 1)
        die("writer", "nobody listens");
}

static void write_changes(void) {
    size_t count;
    /* It has the database open. */
    answer();
    while (get_bytes(&count, sizeof count)) {
        struct change *changes = calloc(count + 1, sizeof *changes);
        if (changes == NULL)
            die("writer", "no memory");
        for (size_t i = 0; i < count; i++) {
            changes[i].key = get_text(&changes[i].key_length);
            changes[i].value = get_text(&changes[i].value_length);
        }
        sqlite_apply(changes, count);
        for (size_t i = 0; i < count; i++) {
            free((char *)changes[i].key);
            free((char *)changes[i].value);
        }
        free(changes);
        answer();
    }
}

/* Writers are made to die, by a failpoint. */
static int dies(void) { return getenv("LAB_DIES") != NULL; }

/* 0 if it died before it had the database open. */
static int try_begin(struct writer *writer) {
    int changes[2], answers[2];
    /* Closed in the next writer: each sees the end of its own. */
    if (pipe(changes) != 0 || pipe(answers) != 0)
        die("writer", "no pipe");
    writer->process = fork();
    if (writer->process < 0)
        die("writer", "no process");
    if (writer->process == 0) {
        dup2(changes[0], STDIN_FILENO);
        dup2(answers[1], STDOUT_FILENO);
        for (int other = 3; other < 256; other++)
            close(other);
        setenv("LAB_WRITER", "1", 1);
        execl("/proc/self/exe", "server", directory, (char *)NULL);
        die("writer", "does not begin");
    }
    close(changes[0]);
    close(answers[1]);
    writer->changes = fdopen(changes[1], "w");
    writer->answers = fdopen(answers[0], "r");
    writer->turns = 0;
    if (writer->changes == NULL || writer->answers == NULL)
        die("writer", "does not begin");
    return fgetc(writer->answers) == '+';
}

/* It has died by a signal: its status is collected. */
static void clear_away(struct writer *writer) {
    int status;
    fclose(writer->changes);
    fclose(writer->answers);
    if (waitpid(writer->process, &status, 0) != writer->process || !WIFSIGNALED(status))
        die("writer", "ended without having died");
}

static void begin(struct writer *writer) {
    while (!try_begin(writer)) {
        if (!dies())
            die("writer", "does not begin");
        clear_away(writer);
    }
}

static void end(struct writer *writer) {
    fclose(writer->changes);
    fclose(writer->answers);
    int status;
    if (waitpid(writer->process, &status, 0) != writer->process || (status != 0 && !(dies() && WIFSIGNALED(status))))
        die("writer", "did not end well");
}

void engine_open(const char *in) {
    sqlite_open(in);
    if (getenv("LAB_WRITER") != NULL) {
        write_changes();
        exit(0);
    }
    signal(SIGPIPE, SIG_IGN);
    directory = in;
    for (int i = 0; i < WRITERS; i++)
        begin(&writers[i]);
}

/* 0 if the writer is dead. */
static int try_apply(struct writer *writer, const struct change *changes, size_t count) {
    fwrite(&count, sizeof count, 1, writer->changes);
    for (size_t i = 0; i < count; i++) {
        put_text(writer->changes, changes[i].key, changes[i].key_length);
        put_text(writer->changes, changes[i].value, changes[i].value_length);
    }
    return fflush(writer->changes) == 0 && fgetc(writer->answers) == '+';
}

void engine_apply(const struct change *changes, size_t count) {
    struct writer *writer = &writers[turn++ % WRITERS];
    if (writer->turns == TURNS) {
        end(writer);
        begin(writer);
    }
    writer->turns++;
    while (!try_apply(writer, changes, count)) {
        if (!dies())
            die("writer", "did not answer");
        clear_away(writer);
        begin(writer);
    }
}
