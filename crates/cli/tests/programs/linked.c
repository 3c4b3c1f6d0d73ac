/* Allocates, writes three blocks to a log, syncs each, and ends with its supervisor as in a power cut. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    int fd = open("a.log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    for (int i = 0; i < 3; i++) {
        char *block = malloc(1 << 20);
        memset(block, 'a' + i, 1 << 20);
        if (write(fd, block, 4096) != 4096 || fsync(fd)) return 1;
        free(block);
    }
    kill(getppid(), SIGKILL);
    kill(getpid(), SIGKILL);
    return 2;
}
