package cache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// ResealForTest seals a closed folder as it is now, with what its seal says of
// unchecked tensors.
func ResealForTest(t *testing.T, dir string) {
	s := &Store{dir: dir}
	seal, ok := s.readSeal()
	require.True(t, ok)
	s.unchecked = map[Key]struct{}{}
	for keys := seal.Unchecked; len(keys) > 0; keys = keys[len(Key{}):] {
		s.unchecked[Key(keys[:len(Key{})])] = struct{}{}
	}
	require.NoError(t, s.writeSeal())
}
