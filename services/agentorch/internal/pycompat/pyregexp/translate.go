package pyregexp

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// translation is a pattern in the syntax of the engine. All its groups are unnamed, so that both sides number them
// alike.
type translation struct {
	pattern string
	names   map[string]int
	groups  int
}

// translator copies a Python pattern, and changes only the parts that the engine interprets differently.
type translator struct {
	rest  string
	out   strings.Builder
	names map[string]int
	count int
	// verbose reports for each open group, the whole pattern first, whether white space and comments are ignored in it.
	verbose []bool
	// begun is set when something other than flags, comments and white space that is ignored was translated.
	begun bool
}

func translate(pattern string) (translation, error) {
	t := &translator{rest: pattern, names: map[string]int{}, verbose: []bool{false}}
	for t.rest != "" {
		aside := t.isAside()
		if err := t.step(); err != nil {
			return translation{}, fmt.Errorf("pattern %q, at byte %d: %w", pattern, len(pattern)-len(t.rest), err)
		}
		t.begun = t.begun || !aside
	}
	return translation{pattern: t.out.String(), names: t.names, groups: t.count}, nil
}

// isAside reports whether what comes next are flags of the whole pattern, a comment, or white space that is ignored.
func (t *translator) isAside() bool {
	ignored := t.isVerbose() && strings.IndexByte(" \t\n\r\v\f#", t.rest[0]) >= 0
	return ignored || comment.MatchString(t.rest) || strings.HasSuffix(flags.FindString(t.rest), ")")
}

// step translates the next element of the pattern.
func (t *translator) step() error {
	switch t.rest[0] {
	case '\\':
		return t.escape(false)
	case '[':
		return t.class()
	case '(':
		return t.open()
	case ')':
		if len(t.verbose) > 1 {
			t.verbose = t.verbose[:len(t.verbose)-1]
		}
	case '{':
		// {,n} means at most n.
		if upTo.MatchString(t.rest) {
			t.replace(1, "{0")
			return nil
		}
	case '#':
		if t.isVerbose() {
			line, _, _ := strings.Cut(t.rest, "\n")
			t.copy(len(line))
			return nil
		}
	}
	t.copy(1)
	return nil
}

var upTo = regexp.MustCompile(`^\{,\d+\}`)

func (t *translator) isVerbose() bool { return t.verbose[len(t.verbose)-1] }

// copy copies n bytes of the pattern to the output.
func (t *translator) copy(n int) {
	t.out.WriteString(t.rest[:n])
	t.rest = t.rest[n:]
}

// replace moves on by n bytes of the pattern and puts text in their place.
func (t *translator) replace(n int, text string) {
	t.out.WriteString(text)
	t.rest = t.rest[n:]
}

// Python's words and white space, as members of a set, and the same alone.
const (
	wordMembers  = `\p{L}\p{N}_`
	spaceMembers = `\s\x1c-\x1f`
	word         = "[" + wordMembers + "]"
	anyCharacter = `[\s\S]`
)

var (
	// oppositeInSet has the members that a negated escape excludes.
	oppositeInSet = map[byte]string{'W': wordMembers, 'S': spaceMembers, 'D': `\d`}

	inSet = map[byte]string{'w': wordMembers, 's': spaceMembers}
	alone = map[byte]string{
		'w': word, 'W': "[^" + wordMembers + "]", 's': "[" + spaceMembers + "]", 'S': "[^" + spaceMembers + "]",
		'b': "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))",
		'B': "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))",
		'Z': `\z`,
	}
)

var (
	groupNumber = regexp.MustCompile(`^[0-9]{1,2}`)
	// octal is a character by its number, which has three digits and is no group.
	octal = regexp.MustCompile(`^\\[0-3][0-7]{2}`)
)

// letterEscapes are the letters that have a meaning after a backslash. Of them \p and \P are the engine's.
const letterEscapes = "AbBdDsSwWZafnrtvxuUNpP"

// escape translates a backslash and its operand.
func (t *translator) escape(inClass bool) error {
	if len(t.rest) < 2 {
		return fmt.Errorf("a backslash at the end")
	}
	switch c := t.rest[1]; {
	case inClass && inSet[c] != "":
		t.replace(2, inSet[c])
	case !inClass && alone[c] != "":
		t.replace(2, alone[c])
	case c == '_':
		t.replace(2, "_")
	case c == 'N':
		return fmt.Errorf(`\N{…} is not supported: write the character or \uXXXX`)
	case c == 'U':
		if len(t.rest) < 10 {
			return fmt.Errorf(`\U needs eight hexadecimal digits`)
		}
		r, err := strconv.ParseUint(t.rest[2:10], 16, 32)
		if err != nil || !utf8.ValidRune(rune(r)) {
			return fmt.Errorf(`\U%s is no character`, t.rest[2:10])
		}
		t.replace(10, regexp.QuoteMeta(string(rune(r))))
	case '1' <= c && c <= '9' && !inClass && !octal.MatchString(t.rest):
		number := groupNumber.FindString(t.rest[1:])
		if n, _ := strconv.Atoi(number); n > t.count {
			return fmt.Errorf(`\%s: no group %s before this`, number, number)
		}
		t.copy(1 + len(number))
	case ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') && (strings.IndexByte(letterEscapes, c) < 0 || inClass && strings.IndexByte("ABZ", c) >= 0):
		return fmt.Errorf(`\%c has no meaning`, c)
	case c >= utf8.RuneSelf:
		_, size := utf8.DecodeRuneInString(t.rest[1:])
		t.replace(1+size, t.rest[1:1+size])
	default:
		t.copy(2)
	}
	return nil
}

// class translates a set in brackets. An opening bracket within it is a plain character, where the engine would begin a
// subtraction.
//
// The engine misjudges sets that hold `\W`, `\S` or `\D` beside other members, so that these are taken out and tested
// on their own: `[x\W]` becomes "x, or no word character", and `[^x\W]` "not x, and a word character".
func (t *translator) class() error {
	t.rest = t.rest[1:]
	negated := strings.HasPrefix(t.rest, "^")
	t.rest = strings.TrimPrefix(t.rest, "^")
	members, complements, err := t.members()
	switch {
	case err != nil:
		return err
	case len(complements) == 0 && negated:
		t.out.WriteString("[^" + members + "]")
	case len(complements) == 0:
		t.out.WriteString("[" + members + "]")
	case negated:
		t.out.WriteString("(?:")
		if members != "" {
			t.out.WriteString("(?![" + members + "])")
		}
		for _, c := range complements {
			t.out.WriteString("(?=[" + c + "])")
		}
		t.out.WriteString(anyCharacter + ")")
	default:
		var either []string
		if members != "" {
			either = append(either, "["+members+"]")
		}
		for _, c := range complements {
			either = append(either, "[^"+c+"]")
		}
		t.out.WriteString("(?:" + strings.Join(either, "|") + ")")
	}
	return nil
}

// members translates the members of a set, up to its closing bracket. Complements are the members of sets whose
// opposite belongs to it.
func (t *translator) members() (members string, complements []string, err error) {
	before := t.out.String()
	t.out.Reset()
	defer func() {
		members = t.out.String()
		t.out.Reset()
		t.out.WriteString(before)
	}()
	if strings.HasPrefix(t.rest, "]") {
		t.replace(1, `\]`)
	}
	for t.rest != "" {
		switch t.rest[0] {
		case ']':
			t.rest = t.rest[1:]
			return "", complements, nil
		case '[':
			t.replace(1, `\[`)
		case '\\':
			if len(t.rest) > 1 && oppositeInSet[t.rest[1]] != "" {
				complements = append(complements, oppositeInSet[t.rest[1]])
				t.rest = t.rest[2:]
			} else if err := t.escape(true); err != nil {
				return "", nil, err
			}
		default:
			t.copy(1)
		}
	}
	return "", nil, fmt.Errorf("a set is not closed by ]")
}

var (
	named       = regexp.MustCompile(`^\(\?P<([^>]*)>`)
	backRef     = regexp.MustCompile(`^\(\?P=([^)]*)\)`)
	conditional = regexp.MustCompile(`^\(\?\(([^)]*)\)`)
	flags       = regexp.MustCompile(`^\(\?([a-zA-Z]*)(-[a-zA-Z]+)?([:)])`)
	comment     = regexp.MustCompile(`^\(\?#[^)]*\)`)
	lookbehind  = regexp.MustCompile(`^\(\?<[=!]`)
	identifier  = regexp.MustCompile(`^[\pL_][\pL\pN_]*$`)
)

// open translates an opening parenthesis and the prefix that defines its kind.
func (t *translator) open() error {
	if !strings.HasPrefix(t.rest, "(?") {
		t.count++
		t.push(t.isVerbose())
		t.copy(1)
		return nil
	}
	if m := named.FindStringSubmatch(t.rest); m != nil {
		return t.openNamed(m[0], m[1])
	}
	if m := backRef.FindStringSubmatch(t.rest); m != nil {
		n, err := t.reference(m[1])
		if err != nil {
			return err
		}
		t.replace(len(m[0]), fmt.Sprintf(`(?:\%d)`, n))
		return nil
	}
	if m := conditional.FindStringSubmatch(t.rest); m != nil {
		n, err := t.reference(m[1])
		if err != nil {
			return err
		}
		t.push(t.isVerbose())
		t.replace(len(m[0]), fmt.Sprintf(`(?(%d)`, n))
		return nil
	}
	if m := comment.FindString(t.rest); m != "" {
		t.replace(len(m), "")
		return nil
	}
	if m := flags.FindStringSubmatch(t.rest); m != nil {
		return t.openFlags(m)
	}
	if strings.HasPrefix(t.rest, "(?<") && !lookbehind.MatchString(t.rest) || strings.HasPrefix(t.rest, "(?'") || strings.HasPrefix(t.rest, "(?P") {
		return fmt.Errorf("unknown kind of group: a named group is written (?P<name>…)")
	}
	// (?=, (?!, (?<=, (?<!, (?> are the same on both sides.
	t.push(t.isVerbose())
	t.copy(2)
	return nil
}

func (t *translator) push(verbose bool) { t.verbose = append(t.verbose, verbose) }

func (t *translator) openNamed(text, name string) error {
	if !identifier.MatchString(name) {
		return fmt.Errorf("bad group name %q", name)
	}
	if _, taken := t.names[name]; taken {
		return fmt.Errorf("group name %q is given twice", name)
	}
	t.count++
	t.names[name] = t.count
	t.push(t.isVerbose())
	t.replace(len(text), "(")
	return nil
}

// reference resolves the name or number of a group that was opened before.
func (t *translator) reference(name string) (int, error) {
	if n, ok := t.names[name]; ok {
		return n, nil
	}
	if n, err := strconv.Atoi(name); err == nil && 1 <= n && n <= t.count {
		return n, nil
	}
	return 0, fmt.Errorf("no group %q before this", name)
}

// openFlags translates (?flags) and (?flags-flags:…). Unicode matching is the only kind, so that `u` has no effect.
func (t *translator) openFlags(m []string) error {
	on, off := m[1], strings.TrimPrefix(m[2], "-")
	for _, flag := range on + off {
		if !strings.ContainsRune("imsux", flag) {
			return fmt.Errorf("flag %q is not supported", flag)
		}
	}
	if m[3] == ")" && t.begun {
		return fmt.Errorf("flags of the whole pattern must be at its start")
	}
	verbose := t.isVerbose()
	if strings.Contains(on, "x") {
		verbose = true
	}
	if strings.Contains(off, "x") {
		verbose = false
	}
	if m[3] == ":" {
		t.push(verbose)
	} else {
		t.verbose[len(t.verbose)-1] = verbose
	}
	t.replace(len(m[0]), "")
	on, off = strings.ReplaceAll(on, "u", ""), strings.ReplaceAll(off, "u", "")
	switch {
	case off != "":
		fmt.Fprintf(&t.out, "(?%s-%s%s", on, off, m[3])
	case on != "" || m[3] == ":":
		fmt.Fprintf(&t.out, "(?%s%s", on, m[3])
	}
	return nil
}
