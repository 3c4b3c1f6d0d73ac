/* Prints the number of its second thread, and waits until it is killed. It is called as forebay's processes are. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

static void *second(void *unused)
{
	printf("%d\n", (int)gettid());
	fflush(stdout);
	pause();
	return unused;
}

int main(void)
{
	pthread_t thread;
	prctl(PR_SET_NAME, "forebay");
	if (pthread_create(&thread, NULL, second, NULL) != 0)
		return 1;
	pthread_join(thread, NULL);
	return 0;
}
