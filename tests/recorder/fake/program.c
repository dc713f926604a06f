/* A program that uses the fake CUDA: program LAUNCHES THREADS END, with END one of exit, abort, kill, _exit, wait, fork. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int fake_init(void);
unsigned fake_launch(void);
unsigned fake_time_to_flush(void);

static int launches;

__attribute__((noinline)) static void innermost(void) { fake_launch(); }

static void *work(void *nothing) {
  for (int i = 0; i < launches; i++) innermost();
  return nothing;
}

int main(int count, char **words) {
  pthread_t threads[64];
  int number = count > 2 ? atoi(words[2]) : 0;
  const char *end = count > 3 ? words[3] : "exit";
  launches = count > 1 ? atoi(words[1]) : 1;
  if (fake_init()) return 9;
  work(NULL);
  for (int i = 0; i < number; i++) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < number; i++) pthread_join(threads[i], NULL);
  if (strcmp(end, "exit") != 0) fake_time_to_flush(); /* as the recorder does a few times a second */
  work(NULL);
  if (strcmp(end, "abort") == 0) abort();
  if (strcmp(end, "kill") == 0) kill(getpid(), SIGKILL);
  if (strcmp(end, "_exit") == 0) _exit(3);
  if (strcmp(end, "wait") == 0) printf("ready\n"), fflush(stdout), pause();
  if (strcmp(end, "fork") == 0) {
    pid_t child = fork();
    if (!child) work(NULL), exit(0);
    waitpid(child, NULL, 0);
  }
  return 5;
}
