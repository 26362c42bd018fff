package cache

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
)

// withVersion makes a store of another format, with a tensor in it.
func withVersion(t *testing.T, version uint64) (dir string, ref Ref) {
	dir = t.TempDir()
	s, err := Open(context.Background(), dir, Options{})
	require.NoError(t, err)
	ref = Ref{Key: NewKey("t").Sum(), DType: "u8", Shape: []int{1}}
	require.NoError(t, s.Put(t.Context(), ref, []byte{1}))
	key := []byte{tagVersion}
	require.NoError(t, s.write(entry{key, frameRecord(key, binary.AppendUvarint(nil, version))}))
	require.NoError(t, s.Close())
	return dir, ref
}

func TestNewerFormatIsRefused(t *testing.T) {
	dir, _ := withVersion(t, formatVersion+1)
	for range 2 {
		_, err := Open(context.Background(), dir, Options{})
		require.ErrorIs(t, err, ErrNewer)
		require.ErrorContains(t, err, "use another folder")
	}
	require.NoDirExists(t, dir+"/badger.damaged-1", "it is left as it is")
}

func TestOlderFormatIsRebuilt(t *testing.T) {
	dir, ref := withVersion(t, formatVersion-1)
	var log bytes.Buffer
	s, err := Open(context.Background(), dir, Options{Log: hclog.New(&hclog.LoggerOptions{Output: &log})})
	require.NoError(t, err)
	require.Contains(t, log.String(), "older")
	require.False(t, s.Has(t.Context(), ref))
	require.NoError(t, s.Close())
}

// Records come from a file that anything may have written over.
func FuzzRecords(f *testing.F) {
	key := []byte{tagTensor, 1}
	ref := Ref{DType: "f32", Shape: []int{2, 3}, Kind: "latent"}
	f.Add(frameTensor(key, ref, []byte{1, 2, 3, 4}))
	f.Add(frameInfo(key, Entry{Ref: ref, Bytes: 4}))
	f.Add(appendFile(nil, stamp{1, 2, 3, 4}, Key{5}))
	f.Add(binary.AppendUvarint(nil, 1<<60))
	f.Fuzz(func(t *testing.T, data []byte) {
		if body, err := openFrame(key, data); err == nil {
			again := frameRecord(key, body)
			require.Equal(t, data, again)
		}
		if ref, payload, err := parseHeader(data); err == nil {
			again := append(appendHeader(nil, ref), payload...)
			ref2, payload2, err := parseHeader(again)
			require.NoError(t, err)
			require.Equal(t, ref, ref2)
			require.Equal(t, payload, payload2)
		}
		parseInfo(Key{}, data)
		parseList(data)
		if st, k, ok := parseFile(data); ok {
			st2, k2, ok := parseFile(appendFile(nil, st, k))
			require.True(t, ok)
			require.Equal(t, st, st2)
			require.Equal(t, k, k2)
		}
	})
}
