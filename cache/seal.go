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
)

// A store that is closed in good order is sealed: seal.json lists Badger's
// files with their stamps, and with their hashes but for the value log, which
// is large and whose entries have checksums of their own. Open compares: a
// changed index is known to be damaged before Badger meets it, and a value log
// that nothing has touched need not be read to be trusted.
const sealName = "seal.json"

type sealed struct {
	Suspect bool         `json:"suspect"` // the value log was not known to be whole
	Files   []sealedFile `json:"files"`
}

type sealedFile struct {
	Name string `json:"name"`
	stamp
	Hash string `json:"hash,omitempty"`
}

type sealState int

const (
	sealIntact  sealState = iota // as sealed, or a new folder
	sealSuspect                  // not sealed, or the value log has been touched
)

func (s *Store) sealPath() string { return filepath.Join(s.dir, sealName) }

// checkSeal compares Badger's folder with its seal. An error says which file
// of the index is damaged.
func (s *Store) checkSeal() (sealState, error) {
	if _, err := os.Stat(s.badgerDir()); errors.Is(err, fs.ErrNotExist) {
		return sealIntact, nil
	}
	seal, ok := s.readSeal()
	if !ok {
		return sealSuspect, probeTables(s.badgerDir())
	}
	now, err := s.listFiles()
	if err != nil {
		return sealSuspect, err
	}
	found := map[string]sealedFile{}
	for _, f := range now {
		found[f.Name] = f
	}
	state := sealIntact
	if seal.Suspect || len(now) != len(seal.Files) {
		state = sealSuspect
	}
	for _, want := range seal.Files {
		got, ok := found[want.Name]
		switch {
		case want.Hash == "" && (!ok || got.stamp != want.stamp):
			state = sealSuspect
		case want.Hash != "" && !ok:
			return sealSuspect, fmt.Errorf("file %s is missing", want.Name)
		case want.Hash != got.Hash && want.Name == discardName:
			// Only statistics, which Badger gathers again.
			if err := os.Remove(filepath.Join(s.badgerDir(), want.Name)); err != nil {
				return sealSuspect, err
			}
		case want.Hash != got.Hash:
			return sealSuspect, fmt.Errorf("file %s is damaged: its bytes have changed since the cache was closed", want.Name)
		}
	}
	return state, nil
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
func (s *Store) writeSeal(suspect bool) error {
	files, err := s.listFiles()
	if err != nil {
		return err
	}
	body, err := json.Marshal(sealed{Suspect: suspect, Files: files})
	if err != nil {
		return err
	}
	text := string(body) + "\n" + HashBytes(body).String() + "\n"
	tmp := s.sealPath() + ".tmp"
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, s.sealPath())
}

// breakSeal removes the seal before anything is written.
func (s *Store) breakSeal() error {
	if err := os.Remove(s.sealPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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
