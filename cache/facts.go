package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Remember keeps a small fact about a content, the size of an image for
// instance, under a name of the caller's.
func (s *Store) Remember(ctx context.Context, content Key, name string, fact []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key := factKey(content, name)
	if err := s.write(entry{key, frameRecord(key, fact)}); err != nil {
		return fmt.Errorf("remember %s of %s in cache %s: %w", name, content, s.dir, err)
	}
	return nil
}

// Recall returns a fact about a content; ErrNotFound if it is not known, or damaged.
func (s *Store) Recall(ctx context.Context, content Key, name string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.record(factKey(content, name))
}

// List is a recorded list: what a dataset found, for instance, so that a later
// run can do without the images.
type List struct {
	Refs []Key  // tensors, or contents, that the list needs; GC can keep them
	Data []byte // the caller's
}

// PutList records a list under a name, replacing the one before.
func (s *Store) PutList(ctx context.Context, name string, list List) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key := listKey(name)
	body := binary.AppendUvarint(nil, uint64(len(list.Refs)))
	for _, k := range list.Refs {
		body = append(body, k[:]...)
	}
	body = append(body, list.Data...)
	if err := s.write(entry{key, frameRecord(key, body)}); err != nil {
		return fmt.Errorf("record list %s in cache %s: %w", name, s.dir, err)
	}
	return nil
}

// GetList returns the list recorded under a name; ErrNotFound if there is none
// or it is damaged.
func (s *Store) GetList(ctx context.Context, name string) (List, error) {
	if err := ctx.Err(); err != nil {
		return List{}, err
	}
	body, err := s.record(listKey(name))
	if err != nil {
		return List{}, fmt.Errorf("list %s: %w", name, err)
	}
	return parseList(body)
}

func parseList(body []byte) (list List, err error) {
	r := reader{p: body}
	n := r.number()
	if n > uint64(len(r.p))/uint64(len(Key{})) {
		return List{}, io.ErrUnexpectedEOF
	}
	list.Refs = make([]Key, n)
	for i := range list.Refs {
		list.Refs[i] = r.key()
	}
	list.Data = r.p
	return list, nil
}

// record returns the body of a small record. A damaged one is as good as none.
func (s *Store) record(key []byte) ([]byte, error) {
	var out []byte
	err := s.read(key, func(frame []byte) error {
		body, err := openFrame(key, frame)
		out = append(out, body...)
		return err
	})
	if errors.Is(err, errFrame) {
		s.log.Warn("record is damaged in the cache: ignored", "record", fmt.Sprintf("%q", key), "cache", s.dir)
		return nil, ErrNotFound
	}
	return out, err
}

func factKey(content Key, name string) []byte {
	return append(append([]byte{tagFact}, content[:]...), name...)
}

func listKey(name string) []byte { return append([]byte{tagList}, name...) }
