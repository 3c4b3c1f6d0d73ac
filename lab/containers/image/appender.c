/* Appends the numbers from argv[2] on to the file argv[1], each on a line and synced, and prints each when it is acknowledged. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int fd = argc == 4 ? open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
	if (fd < 0)
		return 2;
	for (long number = atol(argv[2]); number <= atol(argv[3]); number++) {
		char line[32];
		int length = snprintf(line, sizeof line, "%ld\n", number);
		if (write(fd, line, length) != length || fdatasync(fd) != 0)
			return 1;
		if (write(1, line, length) != length)
			return 1;
	}
	return 0;
}
