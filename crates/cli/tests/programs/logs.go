// Writes logs as Go programs do: without the C library, and with a runtime that signals its
// threads all the time. With an argument it ends with that status, and else with all of its
// process group, as in a power cut.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func logged(file *os.File, letter byte, times int) {
	for i := 0; i < times; i++ {
		_, err := file.Write(bytes.Repeat([]byte{letter}, 100))
		check(err)
		check(file.Sync())
	}
}

// Becomes another user in all threads, whom no agent without more rights may look at.
func drop() {
	log, err := os.OpenFile("a.log", os.O_WRONLY|os.O_CREATE|os.O_SYNC, 0o600)
	check(err)
	logged(log, 'a', 20)
	for i := 0; i < 8; i++ {
		go func() {
			runtime.LockOSThread()
			select {}
		}()
	}
	check(syscall.Setresgid(-1, 65534, -1))
	check(syscall.Setresuid(-1, 65534, -1))
	logged(log, 'b', 20)
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, log.Fd(), syscall.F_GETFL, 0)
	if errno != 0 || flags&syscall.O_SYNC != syscall.O_SYNC {
		check(fmt.Errorf("flags %x, %v", flags, errno))
	}
	check(syscall.Kill(0, syscall.SIGKILL))
	select {}
}

func main() {
	runtime.GOMAXPROCS(4)
	if len(os.Args) > 1 && os.Args[1] == "drop" {
		drop()
	}
	check(os.MkdirAll("wal.tmp", 0o700))
	file, err := os.OpenFile(filepath.Join("wal.tmp", "0.log"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	check(err)
	check(syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	check(syscall.Fallocate(int(file.Fd()), 0, 0, 100_000))
	logged(file, 'a', 20)
	check(os.Rename("wal.tmp", "wal"))
	logged(file, 'b', 20)
	_, err = file.Seek(50, 0)
	check(err)
	read := make([]byte, 100)
	_, err = file.Read(read)
	check(err)
	if read[0] != 'a' {
		check(fmt.Errorf("read %q", read))
	}
	log, err := os.OpenFile("a.log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	check(err)
	var group sync.WaitGroup
	for worker := 0; worker < 8; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < 100; i++ {
				logged(log, byte('a'+worker), 1)
				_ = make([]byte, 1<<20)
			}
		}()
	}
	group.Wait()
	out, err := exec.Command("sh", "-c", "printf shell >> other.log && cat a.log | wc -c").Output()
	check(err)
	if string(bytes.TrimSpace(out)) != "80000" {
		check(fmt.Errorf("the shell found %q bytes", out))
	}
	logged(log, 'z', 3)
	check(os.Rename("a.log", "b.log"))
	check(os.Rename("b.log", "a.log"))
	if len(os.Args) > 1 {
		status, _ := strconv.Atoi(os.Args[1])
		os.Exit(status)
	}
	check(syscall.Kill(0, syscall.SIGKILL))
	select {}
}
