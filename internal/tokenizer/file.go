package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// file is tokenizer.json.
type file struct {
	Model        model        `json:"model"`
	Normalizer   *step        `json:"normalizer"`
	PreTokenizer *step        `json:"pre_tokenizer"`
	Added        []addedToken `json:"added_tokens"`
}

// step is a normaliser or a pre-tokenizer: one of several types, with the
// fields of those that are known here.
type step struct {
	Type string `json:"type"`

	Normalizers   []step `json:"normalizers"`   // Sequence
	PreTokenizers []step `json:"pretokenizers"` // Sequence

	Pattern  pattern `json:"pattern"` // Split
	Behavior string  `json:"behavior"`
	Invert   bool    `json:"invert"`

	AddPrefixSpace bool  `json:"add_prefix_space"` // ByteLevel
	UseRegex       *bool `json:"use_regex"`
}

type pattern struct {
	Regex  *string
	String *string
}

// model is the "model" of tokenizer.json.
type model struct {
	Type         string         `json:"type"`
	Vocab        map[string]int `json:"vocab"`
	Merges       merges         `json:"merges"`
	IgnoreMerges bool           `json:"ignore_merges"`

	Dropout      *float64 `json:"dropout"`
	Continuation *string  `json:"continuing_subword_prefix"`
	EndOfWord    *string  `json:"end_of_word_suffix"`
}

// merges are pairs of tokens, the most frequent first: written as "a b", or, in
// newer files, as ["a", "b"].
type merges [][2]string

// UnmarshalJSON walks over the strings itself: there are hundreds of thousands,
// and the text has been checked to be JSON already.
func (m *merges) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	*m = make(merges, 0, bytes.Count(data, []byte(","))+1)
	var pair []string
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '[':
			depth++
			pair = pair[:0]
		case ']':
			if depth == 2 {
				if len(pair) != 2 {
					return fmt.Errorf("merge %d has %d parts, not 2", len(*m), len(pair))
				}
				*m = append(*m, [2]string(pair))
			}
			depth--
		case ',', ' ', '\n', '\r', '\t':
		case '"':
			text, n, err := quoted(data[i:])
			if err != nil {
				return err
			}
			i += n - 1
			if depth == 2 {
				pair = append(pair, text)
				continue
			}
			a, b, ok := strings.Cut(text, " ")
			if !ok {
				return fmt.Errorf("merge %d %q has no space", len(*m), text)
			}
			*m = append(*m, [2]string{a, b})
		default:
			return errors.New("merges are neither strings nor pairs of strings")
		}
		if depth > 2 {
			return errors.New("merges are neither strings nor pairs of strings")
		}
	}
	return nil
}

// quoted returns the JSON string at the start of data and the bytes it takes.
func quoted(data []byte) (text string, n int, err error) {
	plain := true
	for n = 1; data[n] != '"'; n++ {
		if data[n] == '\\' {
			plain = false
			n++
		}
	}
	n++
	if plain {
		return string(data[1 : n-1]), n, nil
	}
	err = json.Unmarshal(data[:n], &text)
	return text, n, err
}

// maxID bounds the ids that a file can make us allocate for.
const maxID = 1 << 24

// Parse reads the bytes of a tokenizer.json.
func Parse(data []byte) (*Tokenizer, error) {
	var f file
	err := json.Unmarshal(data, &f)
	var wrongType *json.UnmarshalTypeError
	if err != nil && !errors.As(err, &wrongType) {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	m := f.Model
	if m.Type != "BPE" && m.Type != "" { // older files leave it out
		return nil, fmt.Errorf("model type %q is not supported, only BPE is", m.Type)
	}
	if err != nil { // said last: models of other types have other fields
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	t := &Tokenizer{}
	if t.normalize, err = newNormalizer(f.Normalizer); err != nil {
		return nil, err
	}
	if t.split, err = newSplitter(f.PreTokenizer); err != nil {
		return nil, err
	}
	if t.bpe, err = newBPE(m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := t.index(m.Vocab, f.Added); err != nil {
		return nil, err
	}
	t.added, t.normalized = newAddedTokens(f.Added, t.normalize)
	return t, nil
}

// index notes the id of every token and the bytes of every id.
func (t *Tokenizer) index(vocab map[string]int, added []addedToken) error {
	size := 0
	for text, id := range vocab {
		if id < 0 || id >= maxID {
			return fmt.Errorf("token %q has id %d", text, id)
		}
		size = max(size, id+1)
	}
	for _, a := range added {
		if a.ID < 0 || a.ID >= maxID {
			return fmt.Errorf("added token %q has id %d", a.Content, a.ID)
		}
		size = max(size, a.ID+1)
	}
	t.ids = vocab
	t.texts = make([][]byte, size)
	for raw, id := range t.bpe.whole {
		t.texts[id] = []byte(raw)
	}
	for _, a := range added {
		t.ids[a.Content] = a.ID
		t.texts[a.ID] = []byte(a.Content)
	}
	return nil
}

// readSettings reads tokenizer_config.json; a file that is not there says nothing.
func readSettings(path string) (Settings, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Settings{}, nil
	}
	if err != nil {
		return Settings{}, err
	}
	var f struct {
		PadToken    tokenText `json:"pad_token"`
		PaddingSide string    `json:"padding_side"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return Settings{}, fmt.Errorf("%s: %w", path, err)
	}
	switch f.PaddingSide {
	case "", "left", "right":
	default:
		return Settings{}, fmt.Errorf(`%s: padding_side is %q, neither "left" nor "right"`, path, f.PaddingSide)
	}
	return Settings{PadToken: string(f.PadToken), PaddingSide: f.PaddingSide}, nil
}

// tokenText is a token as tokenizer_config.json has it: its text, or an object
// with the text in "content".
type tokenText string

func (t *tokenText) UnmarshalJSON(data []byte) error {
	var object struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(data, &object) == nil {
		*t = tokenText(object.Content)
		return nil
	}
	return json.Unmarshal(data, (*string)(t))
}
