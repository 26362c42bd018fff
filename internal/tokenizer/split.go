package tokenizer

import (
	"fmt"
	"strings"

	"github.com/dlclark/regexp2/v2"
)

// splitter cuts normalised text into the pieces that BPE encodes one by one.
type splitter func(text string, piece func(string))

// newSplitter builds the splitter of a pre-tokenizer: Split with a regular
// expression and behaviour Isolated, and ByteLevel without a pattern of its
// own, as they come in any Sequence.
func newSplitter(s *step) (splitter, error) {
	split := splitter(func(text string, piece func(string)) { piece(text) })
	bytes := false
	for _, s := range flatten(s) {
		switch s.Type {
		case "Split":
			if bytes {
				return nil, fmt.Errorf("pre_tokenizer: Split after ByteLevel is not supported")
			}
			next, err := newSplit(s)
			if err != nil {
				return nil, fmt.Errorf("pre_tokenizer Split: %w", err)
			}
			before := split
			split = func(text string, piece func(string)) {
				before(text, func(part string) { next(part, piece) })
			}
		case "ByteLevel":
			if s.AddPrefixSpace {
				return nil, fmt.Errorf("pre_tokenizer ByteLevel: add_prefix_space is not supported")
			}
			if s.UseRegex == nil || *s.UseRegex {
				return nil, fmt.Errorf("pre_tokenizer ByteLevel: use_regex is not supported, a Split with the pattern is")
			}
			bytes = true
		default:
			return nil, fmt.Errorf("pre_tokenizer type %q is not supported", s.Type)
		}
	}
	if !bytes {
		return nil, fmt.Errorf("pre_tokenizer: there is no ByteLevel in it, and only byte-level BPE is supported")
	}
	return split, nil
}

// flatten returns the steps of a pre-tokenizer in order, with nested sequences opened.
func flatten(s *step) []step {
	if s == nil {
		return nil
	}
	if s.Type != "Sequence" {
		return []step{*s}
	}
	var all []step
	for i := range s.PreTokenizers {
		all = append(all, flatten(&s.PreTokenizers[i])...)
	}
	return all
}

func newSplit(s step) (splitter, error) {
	if s.Behavior != "Isolated" || s.Invert {
		return nil, fmt.Errorf("behavior %q with invert %v is not supported, only Isolated without is", s.Behavior, s.Invert)
	}
	var source string
	switch {
	case s.Pattern.Regex != nil:
		source = foldLongS(*s.Pattern.Regex)
	case s.Pattern.String != nil:
		source = regexp2.Escape(*s.Pattern.String)
	default:
		return nil, fmt.Errorf("there is no pattern")
	}
	// A piece of text costs at most a few stack slots a character with the known
	// patterns, so there is no limit that a long caption could meet.
	re, err := regexp2.Compile(source, regexp2.OptionMaxBacktrackingStackSize(-1))
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", source, err)
	}
	return func(text string, piece func(string)) { isolate(re, text, piece) }, nil
}

// isolate calls piece with every match and with what lies between them.
func isolate(re *regexp2.Regexp, text string, piece func(string)) {
	matches, err := re.FindAllStringIndex(text, -1)
	if err != nil {
		panic(fmt.Sprintf("tokenizer: pattern %q without limits: %v", re, err))
	}
	done := 0
	for _, m := range matches {
		if m[0] > done {
			piece(text[done:m[0]])
		}
		if m[1] > m[0] {
			piece(text[m[0]:m[1]])
		}
		done = m[1]
	}
	if done < len(text) {
		piece(text[done:])
	}
}

// foldLongS lets an s inside (?i:…) match U+017F, the long s, too: Unicode's
// case folding, which the reference implementation's engine applies and ours
// does not, has the two equal. (Of the other such letters, U+212A for k, none
// is in a known pattern.)
func foldLongS(pattern string) string {
	const open = "(?i:"
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(pattern, open)
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		group, after, ok := strings.Cut(rest, ")")
		if !ok || strings.ContainsAny(group, `[\(`) { // not a plain list of words
			b.WriteString(open)
			pattern = rest
			continue
		}
		b.WriteString(open + strings.ReplaceAll(group, "s", "[sſ]") + ")")
		pattern = after
	}
}
