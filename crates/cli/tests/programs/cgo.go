// A Go program that is linked to the C library, and calls the kernel past it.
package main

// #include <unistd.h>
import "C"

import (
	"os"
	"syscall"
)

// With arguments, it executes them at the end.
func main() {
	file, err := os.OpenFile("a.log", os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil || C.getpid() != C.int(os.Getpid()) {
		os.Exit(3)
	}
	if _, err := file.WriteString("by Go"); err != nil || file.Sync() != nil {
		os.Exit(4)
	}
	if len(os.Args) > 1 {
		syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
		os.Exit(5)
	}
}
