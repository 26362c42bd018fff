// Package tokenizer turns text into token ids as a model's tokenizer.json says:
// added tokens are cut out of the text, the rest is normalised, split by the
// file's regular expression, and each piece is encoded by byte-level BPE. It
// covers what FLUX.2's text towers (Mistral's Tekken in its Hugging Face form,
// Qwen) use, with the regular expression taken from the file; a file that asks
// for anything else is refused with the name of what is not known, since a
// wrong token is worse than none. A file's post-processor is not run: prompt
// templates hold the special tokens already.
//
// A Tokenizer may be used from any goroutine. It starts none.
package tokenizer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Tokenizer is a loaded tokenizer.
type Tokenizer struct {
	added      *addedTokens // found in the text as it is
	normalized *addedTokens // found in the normalised text
	normalize  normalizer
	split      splitter
	bpe        *bpe

	ids   map[string]int // of added tokens and of the vocabulary, as the file spells them
	texts [][]byte       // what each id stands for; nil for ids that stand for nothing

	settings Settings
}

// Settings are what tokenizer_config.json says; empty where it says nothing.
type Settings struct {
	PadToken    string
	PaddingSide string // "left" or "right"
}

// Load reads tokenizer.json from a folder, and tokenizer_config.json where there is one.
func Load(dir string) (*Tokenizer, error) {
	path := filepath.Join(dir, "tokenizer.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if t.settings, err = readSettings(filepath.Join(dir, "tokenizer_config.json")); err != nil {
		return nil, err
	}
	return t, nil
}

// Settings returns what tokenizer_config.json said.
func (t *Tokenizer) Settings() Settings { return t.settings }

// Token returns the id of a token by its text as the file has it ("<pad>"),
// and whether there is one.
func (t *Tokenizer) Token(text string) (int, bool) {
	id, ok := t.ids[text]
	return id, ok
}

// Size returns the number of ids: one more than the largest.
func (t *Tokenizer) Size() int { return len(t.texts) }

// Encode returns the ids of text. Bytes that are not UTF-8 count as U+FFFD.
// Nothing is added: no beginning, no end, no padding.
func (t *Tokenizer) Encode(text string) []int {
	ids := []int{}
	t.added.cut(strings.ToValidUTF8(text, "\uFFFD"), &ids, func(rest string) {
		t.normalized.cut(t.normalize(rest), &ids, func(rest string) {
			t.split(rest, func(piece string) { ids = t.bpe.encode(ids, piece) })
		})
	})
	return ids
}

// Decode returns the text of ids: what Encode was given, but for normalisation
// and for spaces that added tokens swallow. Unknown ids stand for nothing.
func (t *Tokenizer) Decode(ids []int) string {
	var b strings.Builder
	for _, id := range ids {
		if id >= 0 && id < len(t.texts) {
			b.Write(t.texts[id])
		}
	}
	return b.String()
}
