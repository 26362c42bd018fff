package cache

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/zeebo/blake3"

	"longship/cache/atomicfile"
)

// A store that is closed in good order is sealed: seal.json lists Badger's
// files with their stamps, and with their hashes but for the value log, which
// is large and whose entries have checksums of their own. Open compares: a
// changed index is known to be damaged before Badger meets it, and a value log
// that nothing has touched need not be read to be trusted.
const sealName = "seal.json"

type sealed struct {
	Unchecked []byte       `json:"unchecked"` // keys, one behind the other, of tensors that were not known to be whole
	Files     []sealedFile `json:"files"`
}

type sealedFile struct {
	Name string `json:"name"`
	stamp
	Hash string `json:"hash,omitempty"`
}

func (s *Store) sealPath() string { return filepath.Join(s.dir, sealName) }

// checkSeal compares Badger's folder with its seal. intact says that no value
// log has been touched since; then the tensors that were not known to be whole
// at the time are in unchecked. An error says which file of the index is damaged.
func (s *Store) checkSeal() (intact bool, unchecked map[Key]struct{}, err error) {
	if _, err := os.Stat(s.badgerDir()); errors.Is(err, fs.ErrNotExist) {
		return true, nil, nil
	}
	seal, ok := s.readSeal()
	if !ok {
		return false, nil, probeTables(s.badgerDir())
	}
	now, err := s.listFiles()
	if err != nil {
		return false, nil, err
	}
	found := map[string]sealedFile{}
	for _, f := range now {
		found[f.Name] = f
	}
	intact = len(now) == len(seal.Files)
	for _, want := range seal.Files {
		got, ok := found[want.Name]
		switch {
		case want.Hash == "" && (!ok || got.stamp != want.stamp):
			intact = false
		case want.Hash != "" && !ok:
			return false, nil, fmt.Errorf("file %s is missing", want.Name)
		case want.Hash != got.Hash && want.Name == discardName:
			// Only statistics, which Badger gathers again.
			if err := os.Remove(filepath.Join(s.badgerDir(), want.Name)); err != nil {
				return false, nil, err
			}
		case want.Hash != got.Hash:
			return false, nil, fmt.Errorf("file %s is damaged: its bytes have changed since the cache was closed", want.Name)
		}
	}
	unchecked = map[Key]struct{}{}
	for keys := seal.Unchecked; len(keys) >= len(Key{}); keys = keys[len(Key{}):] {
		unchecked[Key(keys[:len(Key{})])] = struct{}{}
	}
	return intact, unchecked, nil
}

// readSeal returns the seal; false if there is none or it is damaged itself.
func (s *Store) readSeal() (seal sealed, ok bool) {
	data, err := os.ReadFile(s.sealPath())
	if err != nil {
		return seal, false
	}
	body, sum, ok := bytes.Cut(data, []byte("\n"))
	if !ok || string(bytes.TrimSpace(sum)) != HashBytes(body).String() {
		return seal, false
	}
	return seal, json.Unmarshal(body, &seal) == nil
}

// writeSeal seals the closed folder.
func (s *Store) writeSeal() error {
	files, err := s.listFiles()
	if err != nil {
		return err
	}
	seal := sealed{Files: files}
	for k := range s.unchecked {
		seal.Unchecked = append(seal.Unchecked, k[:]...)
	}
	body, err := json.Marshal(seal)
	if err != nil {
		return err
	}
	text := string(body) + "\n" + HashBytes(body).String() + "\n"
	return atomicfile.WriteBytes(s.sealPath(), []byte(text))
}

// breakSeal removes the seal before anything is written, for good: one that a
// power cut brought back would call an index damaged that has only grown.
func (s *Store) breakSeal() error {
	err := os.Remove(s.sealPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(s.dir)
}

const discardName = "DISCARD" // Badger's statistics of what in the value log is stale

// listFiles describes the files in Badger's folder.
func (s *Store) listFiles() ([]sealedFile, error) {
	entries, err := os.ReadDir(s.badgerDir())
	if err != nil {
		return nil, err
	}
	var files []sealedFile
	for _, e := range entries {
		path := filepath.Join(s.badgerDir(), e.Name())
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		f := sealedFile{Name: e.Name(), stamp: stampOf(info)}
		if !strings.HasSuffix(e.Name(), ".vlog") {
			if f.Hash, err = hashFile(path); err != nil {
				return nil, err
			}
		}
		files = append(files, f)
	}
	return files, nil
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := blake3.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
