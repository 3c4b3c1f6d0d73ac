/* Children of every kind, of a process that has a.log open and wrote 100 bytes 'a' to it, acknowledged.
 *
 * `children vfork`: one of vfork opens it with O_TRUNC, and writes and syncs "new". Then the program and its supervisor are killed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void truncate_and_write(void) {
    int fd = open("a.log", O_WRONLY | O_TRUNC);
    _exit(fd < 0 || write(fd, "new", 3) != 3 || fsync(fd) != 0);
}

int main(int argc, char **argv) {
    char kind = argc > 1 ? argv[1][0] : 0;
    char bytes[100];
    memset(bytes, 'a', sizeof bytes);
    int fd = open("a.log", O_WRONLY | O_CREAT, 0600);
    if (write(fd, bytes, sizeof bytes) != sizeof bytes || fsync(fd) != 0)
        return 1;
    if (kind == 'v') {
        int status = 1;
        pid_t child = vfork();
        if (child == 0)
            truncate_and_write();
        if (waitpid(child, &status, 0) != child || status != 0)
            return 2;
    }
    kill(getppid(), SIGKILL);
    kill(getpid(), SIGKILL);
}
