package train

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/gofrs/flock"
)

// FolderLock keeps other processes from writing to a folder. It is an advisory
// lock of the operating system on a file in the folder (flock), so it ends with
// its process, however that ends: there are no stale locks, and a lock file
// that a killed process left behind locks nothing.
type FolderLock struct {
	path string
	file *flock.Flock
}

// signature is what a holder writes into its lock file.
var signature = regexp.MustCompile(`^process [0-9]+ on [-.A-Za-z0-9 ]{1,100}$`)

// LockFolder locks a folder, which must exist, for one use, such as "save":
// different uses do not exclude each other. It does not wait: a folder that is
// locked is an error that says by whom.
func LockFolder(dir, use string) (*FolderLock, error) {
	l := &FolderLock{path: filepath.Join(dir, "."+use+".lock")}
	if err := l.take(); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return l, nil
}

func (l *FolderLock) take() error {
	for {
		// Network file systems need a file that can be written.
		f := flock.New(l.path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o666))
		ok, err := f.TryLock()
		if err != nil {
			f.Close()
			return fmt.Errorf("it cannot be locked: %w", err)
		}
		if !ok {
			f.Close()
			return fmt.Errorf("another process writes there%s", holder(l.path))
		}
		l.file = f
		// Its holder removes the file before it unlocks it, and may have done so
		// between our opening and our locking.
		if l.held() {
			return l.sign()
		}
		f.Close()
	}
}

// sign writes who holds the lock, for the message of those who do not get it.
func (l *FolderLock) sign() error {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	text := fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host)
	if err := os.WriteFile(l.path, text, 0o666); err != nil {
		l.Unlock()
		return fmt.Errorf("it cannot be locked: %w", err)
	}
	return nil
}

// holder says who signed a lock file, or nothing.
func holder(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 200))
	if b = bytes.TrimSpace(b); err != nil || !signature.Match(b) {
		return ""
	}
	return fmt.Sprintf(" (%s)", b)
}

// held reports whether the file that is locked is the one in the folder.
func (l *FolderLock) held() bool {
	own, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(l.path)
	return err == nil && os.SameFile(own, there)
}

// Keep takes the lock again if its file is gone, as it is after somebody has
// removed the folder. It fails when another process has it now.
func (l *FolderLock) Keep() error {
	if l.held() {
		return nil
	}
	l.file.Close()
	if err := l.take(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Dir(l.path), err)
	}
	return nil
}

// Unlock ends the lock and removes its file.
func (l *FolderLock) Unlock() error {
	var err error
	if l.held() {
		err = os.Remove(l.path)
	}
	return errors.Join(err, l.file.Close())
}
