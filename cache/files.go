package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/zeebo/blake3"
)

// FileInfo is what the cache knows of a file's bytes.
type FileInfo struct {
	Content Key // BLAKE3-256 of the file's bytes
	Size    int64
	ModTime time.Time
	Known   bool // it was remembered: the file was not read
}

// File returns the content key of a regular file. The file is read only if it
// is not known by path, size, mtime, ctime and inode, or with Options.Rehash;
// so a known file costs one stat. A file that changes while it is read is an error.
func (s *Store) File(ctx context.Context, path string) (FileInfo, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return FileInfo{}, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return FileInfo{}, err
	}
	if !info.Mode().IsRegular() {
		return FileInfo{}, fmt.Errorf("%s is no regular file", abs)
	}
	key := fileKey(abs)
	before := stampOf(info)
	out := FileInfo{Size: info.Size(), ModTime: info.ModTime()}
	if !s.rehash {
		if known, content := s.recall(key); known == before {
			out.Content, out.Known = content, true
			return out, nil
		}
	}
	start := time.Now()
	if out.Content, err = s.hash(ctx, abs, before); err != nil {
		return FileInfo{}, err
	}
	if before.settled(start) {
		if err := s.write(entry{key, frameRecord(key, appendFile(nil, before, out.Content))}); err != nil {
			return FileInfo{}, fmt.Errorf("remember %s in cache %s: %w", abs, s.dir, err)
		}
	}
	return out, nil
}

// hash reads a file whole and sees to it that it was one file all along.
func (s *Store) hash(ctx context.Context, path string, before stamp) (Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return Key{}, err
	}
	defer f.Close()
	h := blake3.New()
	buf := make([]byte, min(1<<20, before.Size+1))
	for {
		if err := ctx.Err(); err != nil {
			return Key{}, err
		}
		n, err := f.Read(buf)
		h.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Key{}, err
		}
	}
	info, err := f.Stat()
	if err != nil {
		return Key{}, err
	}
	if stampOf(info) != before {
		return Key{}, fmt.Errorf("%s changed while it was read", path)
	}
	var k Key
	h.Sum(k[:0])
	return k, nil
}

// recall returns the remembered stamp and content of a file.
func (s *Store) recall(key []byte) (known stamp, content Key) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return noStamp, Key{}
	}
	return readFile(s.db, key)
}

// noStamp is a stamp that no file has.
var noStamp = stamp{Size: -1}

// readFile returns the record of a file, with noStamp where there is none.
func readFile(db *badger.DB, key []byte) (known stamp, content Key) {
	known = noStamp
	readEntry(db, key, func(frame []byte) error {
		body, err := openFrame(key, frame)
		if err != nil {
			return err
		}
		if st, c, ok := parseFile(body); ok {
			known, content = st, c
		}
		return nil
	})
	return known, content
}

func fileKey(path string) []byte { return append([]byte{tagFile}, path...) }

func appendFile(p []byte, st stamp, content Key) []byte {
	p = binary.AppendUvarint(p, uint64(st.Size))
	p = binary.AppendVarint(p, st.MTime)
	p = binary.AppendVarint(p, st.CTime)
	p = binary.AppendUvarint(p, st.Inode)
	return append(p, content[:]...)
}

func parseFile(p []byte) (st stamp, content Key, ok bool) {
	r := reader{p: p}
	st.Size = int64(r.number())
	st.MTime = r.signed()
	st.CTime = r.signed()
	st.Inode = r.number()
	content = r.key()
	return st, content, !r.bad
}

func (r *reader) signed() int64 {
	v, n := binary.Varint(r.p)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.p = r.p[n:]
	return v
}
