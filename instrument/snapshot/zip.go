package snapshot

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"path"
)

// readZip reads the snapshot in an archive that torch.save wrote: the pickle
// data.pkl, which refers to no tensors.
func readZip(r io.ReaderAt, size int64) (*Snapshot, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("damaged zip archive: %w", err)
	}
	for _, f := range z.File {
		if path.Base(f.Name) != "data.pkl" {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return nil, fmt.Errorf("data.pkl in the zip archive: %w", err)
		}
		defer in.Close()
		count := &counter{n: min(int64(f.CompressedSize64), size)}
		return readPickle(&expander{Reader: in, in: count}, count)
	}
	return nil, errors.New("a zip archive without data.pkl, not one of torch.save's")
}
