package jsonwrite

import "iter"

// The methods below write a member when there is something to write, so that callers read as a list of fields.

// TextMember writes a member that is a text.
func (w *Writer) TextMember(name, text string) {
	w.Key(name)
	w.Text(text)
}

// BoolMember writes a member that is a truth value.
func (w *Writer) BoolMember(name string, b bool) {
	w.Key(name)
	w.Bool(b)
}

// IntMember writes a member that is an integer.
func (w *Writer) IntMember(name string, n int64) {
	w.Key(name)
	w.Int(n)
}

// RawMember writes a member whose value is JSON already.
func (w *Writer) RawMember(name, json string) {
	w.Key(name)
	w.Raw(json)
}

// TextUnlessEmpty writes a member unless text is empty.
func (w *Writer) TextUnlessEmpty(name, text string) {
	if text != "" {
		w.TextMember(name, text)
	}
}

// RawUnlessEmpty writes a member unless json is empty.
func (w *Writer) RawUnlessEmpty(name, json string) {
	if json != "" {
		w.RawMember(name, json)
	}
}

// OptText writes a member unless text is nil.
func (w *Writer) OptText(name string, text *string) {
	if text != nil {
		w.TextMember(name, *text)
	}
}

// OptBool writes a member unless b is nil.
func (w *Writer) OptBool(name string, b *bool) {
	if b != nil {
		w.BoolMember(name, *b)
	}
}

// OptInt writes a member unless n is nil.
func OptInt[T int32 | int64](w *Writer, name string, n *T) {
	if n != nil {
		w.IntMember(name, int64(*n))
	}
}

// OptFloat writes a member unless f is nil.
func (w *Writer) OptFloat(name string, f *float64) {
	if f != nil {
		w.Key(name)
		w.Float(*f)
	}
}

// TextList writes a member that is a list of texts.
func (w *Writer) TextList(name string, texts []string) {
	w.Key(name)
	w.Texts(texts)
}

// Texts writes a list of texts.
func (w *Writer) Texts(texts []string) {
	w.BeginList()
	for _, text := range texts {
		w.Text(text)
	}
	w.EndList()
}

// RawList writes a list of values that are JSON already.
func RawList[T ~string | ~[]byte](w *Writer, values []T) {
	w.BeginList()
	for _, value := range values {
		w.Raw(string(value))
	}
	w.EndList()
}

// BeginObjectMember opens an object that is a member.
func (w *Writer) BeginObjectMember(name string) {
	w.Key(name)
	w.BeginObject()
}

// BeginListMember opens a list that is a member.
func (w *Writer) BeginListMember(name string) {
	w.Key(name)
	w.BeginList()
}

// TextObject writes an object whose members are texts, given as a name and its text by turns.
func (w *Writer) TextObject(members ...string) {
	w.BeginObject()
	for len(members) >= 2 {
		w.TextMember(members[0], members[1])
		members = members[2:]
	}
	w.EndObject()
}

// TextObjectMember is TextObject as a member.
func (w *Writer) TextObjectMember(name string, members ...string) {
	w.Key(name)
	w.TextObject(members...)
}

// TextOrNull writes a member that is null if text is empty.
func (w *Writer) TextOrNull(name, text string) {
	w.Key(name)
	if text == "" {
		w.Null()
	} else {
		w.Text(text)
	}
}

// List writes a list and yields its elements, each of which the caller writes as a value.
func List[T any](w *Writer, elements []T) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		w.BeginList()
		defer w.EndList()
		for i, element := range elements {
			if !yield(i, element) {
				return
			}
		}
	}
}

// Objects writes a list of objects and yields their values, of each of which the caller writes the members.
func Objects[T any](w *Writer, values []T) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i, value := range List(w, values) {
			w.BeginObject()
			more := yield(i, value)
			w.EndObject()
			if !more {
				return
			}
		}
	}
}
