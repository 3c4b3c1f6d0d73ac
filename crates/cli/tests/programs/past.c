// Writes and syncs by a descriptor that it inherited, whose number it is given. Linked statically, it does so past every library.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments) {
    int fd = count > 1 ? atoi(arguments[1]) : 3;
    char bytes[50];
    memset(bytes, 'n', sizeof bytes);
    return pwrite(fd, bytes, sizeof bytes, 0) != sizeof bytes || fsync(fd) != 0;
}
