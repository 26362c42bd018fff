package dataset

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadCaption(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ file, want string }{
		"utf-8":                 {"a café by the sea", "a café by the sea"},
		"white space around":    {"\n  a dog \r\n\r\n", "a dog"},
		"white space inside":    {"a dog,\n  a cat", "a dog,\n  a cat"},
		"utf-8 with mark":       {"\xef\xbb\xbfa café", "a café"},
		"utf-16 little":         {"\xff\xfea\x00 \x00c\x00a\x00f\x00\xe9\x00\n\x00", "a café"},
		"utf-16 big":            {"\xfe\xff\x00a\x00 \x00c\x00a\x00f\x00\xe9", "a café"},
		"utf-16 little no mark": {"a\x00 \x00d\x00o\x00g\x00", "a dog"},
		"utf-16 big no mark":    {"\x00a\x00 \x00d\x00o\x00g", "a dog"},
		"utf-16 beyond the BMP": {"\xff\xfe\x3d\xd8\x36\xdc", "\U0001f436"},
		"latin-1":               {"a caf\xe9", "a caf\ufffd"},
		"half a utf-16 unit":    {"\xff\xfea\x00b", "a\ufffd"},
		"blank":                 {" \n", ""},
		"nothing":               {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "caption.txt")
			require.NoError(t, os.WriteFile(path, []byte(c.file), 0o644))
			got, err := readCaption(path, false)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestReadCaptionJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "caption.json")
	for file, want := range map[string]string{
		`{"caption": "a dog ", "caption_short": "dog"}`: "a dog",
		`{"caption_short": "dog", "tags": ["x"]}`:       "dog",
		`{}`: "",
		``:   "",
	} {
		require.NoError(t, os.WriteFile(path, []byte(file), 0o644))
		got, err := readCaption(path, true)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.NoError(t, os.WriteFile(path, []byte(`{"caption": `), 0o644))
	_, err := readCaption(path, true)
	require.Error(t, err)
}

func TestReadCaptionRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := readCaption(dir, false)
	require.ErrorContains(t, err, "folder")
	path := filepath.Join(dir, "long.txt")
	require.NoError(t, os.WriteFile(path, make([]byte, maxCaption+1), 0o644))
	_, err = readCaption(path, false)
	require.ErrorContains(t, err, "more than a caption")
	require.NoError(t, os.WriteFile(path, []byte("\x00\x01\x02\x03\x04\x00"), 0o644))
	_, err = readCaption(path, false)
	require.ErrorContains(t, err, "no text")
}

func TestFinalCaption(t *testing.T) {
	for name, c := range map[string]struct{ trigger, byDefault, text, want string }{
		"as written":              {"", "", "a dog", "a dog"},
		"default":                 {"", "a photo", "", "a photo"},
		"nothing at all":          {"", "", "", ""},
		"trigger before":          {"ohwx", "", "a dog", "ohwx a dog"},
		"trigger there":           {"ohwx", "", "a dog of ohwx", "a dog of ohwx"},
		"trigger in a word":       {"dog", "", "two dogs", "two dogs"},
		"trigger alone":           {"ohwx", "", "", "ohwx"},
		"placeholders":            {"ohwx", "", "[trigger] and [name]", "ohwx and ohwx"},
		"placeholders, no word":   {"", "", "a [trigger] dog", "a  dog"},
		"placeholder by default":  {"ohwx", "a photo of [trigger]", "", "a photo of ohwx"},
		"placeholder is replaced": {"[name]x", "", "[name]", "[name]x"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &Config{TriggerWord: c.trigger, DefaultCaption: c.byDefault}
			require.Equal(t, c.want, cfg.finalCaption(c.text))
		})
	}
}
