/* What the C library has since glibc 2.39, where it is older. The program's number stands for its descriptor. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>

typedef int spawning(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]);

int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, char *const arguments[],
                char *const environment[])
{
    spawning *spawn = dlsym(RTLD_NEXT, "posix_spawn");
    return spawn(pidfd, path, actions, attributes, arguments, environment);
}

int pidfd_spawnp(int *pidfd, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, char *const arguments[],
                 char *const environment[])
{
    spawning *spawn = dlsym(RTLD_NEXT, "posix_spawnp");
    return spawn(pidfd, file, actions, attributes, arguments, environment);
}
