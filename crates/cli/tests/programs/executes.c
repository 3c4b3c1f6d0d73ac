/* Executes ./other by a function, with a log open: `executes WAY`. Without a way it says which there are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *words[] = {"./other", 0};

static int waited(pid_t child) {
    int status;
    return child < 0 || waitpid(child, &status, 0) != child || status ? 1 : 0;
}

static int by_execve(void) { return execve("./other", words, environ); }
static int by_execv(void) { return execv("./other", words); }
static int by_execvp(void) { setenv("PATH", "/nowhere:.", 1); return execvp("other", words); }
static int by_execvpe(void) { return execvpe("./other", words, environ); }
static int by_execl(void) { return execl("./other", "./other", (char *)0); }
static int by_execlp(void) { return execlp("./other", "./other", (char *)0); }
static int by_fexecve(void) { return fexecve(open("./other", O_RDONLY), words, environ); }
static int by_execveat(void) { return execveat(open(".", O_RDONLY), "other", words, environ, 0); }
static int by_number(void) { return syscall(SYS_execve, "./other", words, environ); }
static int by_number_at(void) { return syscall(SYS_execveat, AT_FDCWD, "./other", words, environ, 0); }
static int by_script(void) { return execve("./script", words, environ); }
static int by_posix_spawn(void) { pid_t child = -1; return posix_spawn(&child, "./other", 0, 0, words, environ) || waited(child); }
static int by_posix_spawnp(void) { pid_t child = -1; return posix_spawnp(&child, "./other", 0, 0, words, environ) || waited(child); }
static int by_vfork(void) { pid_t child = vfork(); if (!child) { execv("./other", words); _exit(1); } return waited(child); }
static int by_shell(void) { return system("./other"); }
static int with_many_variables(void) {
    char name[20];
    for (int n = 0; n < 500; n++) snprintf(name, sizeof name, "V%d", n), setenv(name, "x", 1);
    return execve("./other", words, environ);
}

#define WAY(of) {#of, of}
static const struct { const char *name; int (*of)(void); } WAYS[] = {
    WAY(by_execve), WAY(by_execv), WAY(by_execvp), WAY(by_execvpe), WAY(by_execl), WAY(by_execlp), WAY(by_fexecve), WAY(by_execveat),
    WAY(by_number), WAY(by_number_at), WAY(by_script), WAY(by_posix_spawn), WAY(by_posix_spawnp), WAY(by_vfork), WAY(by_shell), WAY(with_many_variables),
};

int main(int count, char **given) {
    int fd = count > 1 ? open("a.log", O_WRONLY | O_CREAT, 0600) : -1;
    if (count > 1 && (write(fd, "x", 1) != 1 || fsync(fd))) return 1;
    for (size_t n = 0; n < sizeof WAYS / sizeof *WAYS; n++) {
        if (count < 2) puts(WAYS[n].name);
        else if (!strcmp(WAYS[n].name, given[1])) return WAYS[n].of();
    }
    return count > 1;
}
