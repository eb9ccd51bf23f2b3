package exec

import "strings"

// lastBlock returns the last block of code between fences (``` or ~~~): of the blocks marked with the language, if
// there are any, otherwise of all. An unclosed block at the end of the text counts too, since answers may be truncated.
func lastBlock(text, language string) (string, bool) {
	var (
		block, best       []string
		fence             string
		marked, bestMarks bool
		found             bool
	)
	end := func() {
		if marked || !bestMarks {
			best, bestMarks, found = block, marked, true
		}
		fence, block = "", nil
	}
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		switch {
		case fence == "" && (strings.HasPrefix(bare, "```") || strings.HasPrefix(bare, "~~~")):
			mark := strings.TrimLeft(bare, bare[:1])
			fence = bare[:len(bare)-len(mark)]
			marked = isLanguage(mark, language)
		case fence != "" && strings.HasPrefix(bare, fence) && strings.Trim(bare, fence[:1]) == "":
			end()
		case fence != "":
			block = append(block, line)
		}
	}
	if fence != "" {
		end()
	}
	return strings.Join(best, ""), found
}

func isLanguage(mark, language string) bool {
	word, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(mark)), " ")
	switch language {
	case "python":
		return word == "python" || word == "py" || word == "python3"
	case "bash":
		return word == "bash" || word == "sh" || word == "shell"
	}
	return word == language
}
