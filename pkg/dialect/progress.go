package dialect

// Progress is how far an answer has come that arrives as events: the part of a [StreamReader] in which formats do not
// differ whose last event says that nothing is missing.
type Progress struct {
	// Begun means that a part of the answer has come, and Ended that the last event has.
	Begun, Ended bool
}

// Started implements StreamReader.
func (p *Progress) Started() bool { return p.Begun }

// Done implements StreamReader.
func (p *Progress) Done() bool { return p.Ended }

// Complete implements StreamReader.
func (p *Progress) Complete() bool { return p.Ended }
