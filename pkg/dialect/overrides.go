package dialect

import (
	"slices"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Overrides are the members of a request that replace those that a codec would write: the request's own Members, and
// above them those of the configuration's extra_body.
type Overrides struct {
	members []Member
	extra   orderedjson.Object
}

const metadataMember = "metadata"

// NewOverrides reads the overrides of a request. Metadata in extra_body is about the call and not for the server; for a
// server that takes it, it is in Members. A model in extra_body is left out: the call is priced and bounded as one of
// its own model. ok is false if extra_body is no JSON object.
func NewOverrides(r *Request) (o Overrides, ok bool) {
	o = membersOf(r)
	if body := r.Config.GetExtraBodyJson(); body != "" {
		extra, err := orderedjson.DecodeObject([]byte(body))
		if err != nil {
			return o, false
		}
		extra.Delete(metadataMember)
		extra.Delete("model")
		o.extra = *extra
	}
	return o, true
}

// Metadata is the member `metadata` of the configuration's extra_body, for a server that takes it; none if it has none.
func Metadata(c *modelv1.GenerateConfig) []Member {
	extra, err := orderedjson.DecodeObject([]byte(c.GetExtraBodyJson()))
	if err != nil {
		return nil // The request is refused for it.
	}
	value, given := extra.Get(metadataMember)
	if !given {
		return nil
	}
	return []Member{{Name: metadataMember, JSON: string(orderedjson.Append(nil, value))}}
}

// membersOf are the overrides of a codec to which extra_body means nothing: the request's own Members.
func membersOf(r *Request) Overrides { return Overrides{members: r.Members} }

// TakeObject removes a member of extra_body, for a codec that merges it with its own, and returns it. A member that is
// neither an object nor null stays, to replace the codec's.
func (o *Overrides) TakeObject(name string) *orderedjson.Object {
	given, _ := o.extra.Get(name)
	object, ok := given.(*orderedjson.Object)
	if !ok {
		object = &orderedjson.Object{}
	}
	if ok || given == nil {
		o.extra.Delete(name)
	}
	return object
}

// Have reports whether the member is overridden.
func (o Overrides) Have(name string) bool {
	_, given := o.extra.Get(name)
	return given || slices.ContainsFunc(o.members, func(m Member) bool { return m.Name == name })
}

// Write writes the overrides, those of extra_body last.
func (o Overrides) Write(w *jsonwrite.Writer) {
	for _, m := range o.members {
		if _, given := o.extra.Get(m.Name); !given {
			w.RawMember(m.Name, m.JSON)
		}
	}
	for name, value := range o.extra.All() {
		w.RawMember(name, string(orderedjson.Append(nil, value)))
	}
}

// MemberWriter writes the members of a request that nothing overrides.
type MemberWriter struct {
	// Body is the request's.
	Body      *jsonwrite.Writer
	Overrides Overrides
}

// Member writes a member.
func (m *MemberWriter) Member(name string, value func()) {
	if !m.Overrides.Have(name) {
		m.Body.Key(name)
		value()
	}
}

// Object writes a member that is an object with these members.
func (m *MemberWriter) Object(name string, members func()) {
	if !m.Overrides.Have(name) {
		m.Body.BeginObjectMember(name)
		members()
		m.Body.EndObject()
	}
}

// OptFloat writes a member unless f is nil.
func (m *MemberWriter) OptFloat(name string, f *float64) {
	if f != nil {
		m.Member(name, func() { m.Body.Float(*f) })
	}
}

// OptBool writes a member unless b is nil.
func (m *MemberWriter) OptBool(name string, b *bool) {
	if b != nil {
		m.Member(name, func() { m.Body.Bool(*b) })
	}
}

// OptText writes a member unless text is nil.
func (m *MemberWriter) OptText(name string, text *string) {
	if text != nil {
		m.Member(name, func() { m.Body.Text(*text) })
	}
}

// OptTexts writes a list of texts unless it is nil.
func (m *MemberWriter) OptTexts(name string, list *modelv1.StringList) {
	if list != nil {
		m.Member(name, func() { m.Body.Texts(list.GetValues()) })
	}
}

// OptInt writes a member unless n is nil.
func OptInt[T int32 | int64](m *MemberWriter, name string, n *T) {
	if n != nil {
		m.Member(name, func() { m.Body.Int(int64(*n)) })
	}
}
