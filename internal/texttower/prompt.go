package texttower

import (
	"fmt"
	"path/filepath"

	"longship/internal/tokenizer"
)

// Prompter turns captions into token rows of constant length, as the family's
// template and the tokenizer's files say.
type Prompter struct {
	family   Family
	tokens   *tokenizer.Tokenizer
	path     string
	length   int
	pad      int
	padToken string
	left     bool
}

// NewPrompter loads the tokenizer from a folder. Prompts are cut at the right to
// length tokens, or padded to it.
func NewPrompter(dir string, family Family, length int) (*Prompter, error) {
	t, err := tokenizer.Load(dir)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	p := &Prompter{family: family, tokens: t, path: filepath.Join(dir, "tokenizer.json"), length: length, padToken: family.PadToken, left: family.PadLeft}
	s := t.Settings()
	if s.PadToken != "" {
		p.padToken = s.PadToken
	}
	if s.PaddingSide != "" {
		p.left = s.PaddingSide == "left"
	}
	var ok bool
	if p.pad, ok = t.Token(p.padToken); !ok {
		return nil, fmt.Errorf("tokenizer %s: its pad token %q is not among its tokens", dir, p.padToken)
	}
	return p, nil
}

// Path returns the tokenizer.json in use.
func (p *Prompter) Path() string { return p.path }

// PadRule describes the padding; it is part of an embedding's key.
func (p *Prompter) PadRule() string {
	if p.left {
		return "left " + p.padToken + ", rows that see nothing attend to zeros"
	}
	return "right " + p.padToken + ", pad rows see the prompt"
}

// Prompt tokenises a caption.
func (p *Prompter) Prompt(caption string) Prompt {
	ids := p.tokens.Encode(p.family.Prompt(caption))
	cut := max(0, len(ids)-p.length)
	ids = ids[:len(ids)-cut]
	out := Prompt{IDs: make([]int, p.length), End: len(ids), Cut: cut}
	if p.left {
		out.First, out.End = p.length-len(ids), p.length
	}
	for i := range out.IDs {
		out.IDs[i] = p.pad
	}
	copy(out.IDs[out.First:], ids)
	return out
}

// Prompt is a tokenised prompt: ids of which [First, End) are real and the
// others padding. Cut is how many ids more it would have, were it not too long.
type Prompt struct {
	IDs        []int
	First, End int
	Cut        int
}

// Stored returns the rows of an embedding that must be stored. Pad rows at the
// left are all equal: they see no token, so attention gives them zeros and only
// the feed-forward acts; one of them is kept. Pad rows at the right see the
// real tokens and are all kept. See internal/embedding.
func (p Prompt) Stored(rows []float32) []float32 {
	width := len(rows) / len(p.IDs)
	return rows[max(p.First-1, 0)*width:]
}
