package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// refusal is an error in REST's form.
type refusal struct {
	Error struct {
		Code            int
		Status, Message string
		Details         []struct {
			Reason          string
			FieldViolations []struct{ Field, Description string }
		}
	}
}

// Invalid fields that a service reports have their JSON names, relative to the body.
func TestAFieldHasTheNameThatTheCallerGaveIt(t *testing.T) {
	t.Parallel()
	url := "http://" + start(t, &runs{created: make(chan *agentv1.CreateRunRequest, 1)}) + "/api/v1/projects/default/runs"
	resp, said := call(t, http.MethodPost, url, `{"spec": {}, "requestId": "`+strings.Repeat("k", 200)+`"}`, nil)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, said)
	var got refusal
	require.NoError(t, json.Unmarshal([]byte(said), &got))
	require.Len(t, got.Error.Details, 2, said)
	assert.Equal(t, "requestId", got.Error.Details[1].FieldViolations[1].Field)
	assert.Contains(t, got.Error.Message, "requestId: ")
}

// Every error over REST has one form, with the name of its status and a reason: of a call, of a stream in both of its
// forms, of the routes and of the guard.
func TestEveryErrorOverRESTHasOneForm(t *testing.T) {
	t.Parallel()
	url := "http://" + start(t, &runs{})
	const api = "/api/v1/projects/default/runs"
	for name, tt := range map[string]struct {
		method, path   string
		headers        map[string]string
		code           int
		status, reason string
	}{
		"a call":          {http.MethodGet, api + "/none", nil, 404, "NOT_FOUND", "RESOURCE_NOT_FOUND"},
		"a stream":        {http.MethodGet, api + "/none:watch", map[string]string{"If-Match": "1"}, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"},
		"events":          {http.MethodGet, api + "/none:watch", map[string]string{"If-Match": "1", "Accept": "text/event-stream"}, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"},
		"an unknown path": {http.MethodGet, "/api/v1/nope", nil, 404, "NOT_FOUND", "ROUTE_NOT_FOUND"},
		"outside the API": {http.MethodGet, "/nope", nil, 404, "NOT_FOUND", "ROUTE_NOT_FOUND"},
		"a bad method":    {http.MethodPut, api, nil, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED"},
		"a wrong token":   {http.MethodGet, api, map[string]string{"Authorization": "Bearer wrong"}, 401, "UNAUTHENTICATED", "TOKEN_INVALID"},
		"a foreign host":  {http.MethodGet, api, map[string]string{"Host": "evil.example"}, 403, "PERMISSION_DENIED", "ACTION_DENIED"},
		"a bad query":     {http.MethodGet, api + "?page_size=x", nil, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"},
	} {
		resp, said := call(t, tt.method, url+tt.path, "", tt.headers)
		assert.Equal(t, tt.code, resp.StatusCode, name)
		if tt.headers["Accept"] != "" {
			_, said, _ = strings.Cut(said, "data: ")
		}
		var got refusal
		require.NoError(t, json.Unmarshal([]byte(said), &got), "%s: %s", name, said)
		assert.Equal(t, tt.code, got.Error.Code, name)
		assert.Equal(t, tt.status, got.Error.Status, name)
		require.NotEmpty(t, got.Error.Details, "%s: %s", name, said)
		assert.Equal(t, tt.reason, got.Error.Details[0].Reason, name)
	}
}

func TestBadInputNamesItsFieldAndTheNextStep(t *testing.T) {
	t.Parallel()
	addr := start(t, &runs{created: make(chan *agentv1.CreateRunRequest, 1)})
	const collection = "/api/v1/projects/default/runs"
	for name, tt := range map[string]struct {
		method, path, body string
		says               []string
		fields             []string
	}{
		"unknown field":               {http.MethodPost, collection, `{"bogus": 1}`, []string{"bogus: unknown field; known: parent, ", "spec"}, []string{"bogus"}},
		"unknown fields deep down":    {http.MethodPost, collection, `{"spec": {"steps": [{"name": "a"}, {"nam": "b"}], "moddel": 1}}`, []string{"spec.moddel: unknown field; known: "}, []string{"spec.moddel", "spec.steps[1].nam"}},
		"unknown value of an enum":    {http.MethodPost, collection, `{"spec": {"input": [{"role": "boss"}]}}`, []string{`spec.input[0].role: unknown value "boss"; known: system, user`}, []string{"spec.input[0].role"}},
		"a value of another kind":     {http.MethodPost, collection, `{"spec": {"steps": 7}}`, []string{"spec.steps: should be a list"}, []string{"spec.steps"}},
		"no object":                   {http.MethodPost, collection, `{"spec": 7}`, []string{"spec: should be an object of evalfleet.agent.v1.RunSpec"}, []string{"spec"}},
		"a text for a number":         {http.MethodPost, collection, `{"spec": {"limits": {"turns": "x"}}}`, []string{"spec.limits.turns: want a whole number"}, []string{"spec.limits.turns"}},
		"no JSON":                     {http.MethodPost, collection, `{"spec": `, []string{"not one JSON value at byte 9", "evalfleet.agent.v1.CreateRunRequest"}, nil},
		"a list":                      {http.MethodPost, collection, `[]`, []string{"no JSON object"}, nil},
		"too large":                   {http.MethodPost, collection, `{"x": "` + strings.Repeat("x", 7<<20) + `"}`, []string{"may have 6291456 bytes", "blob"}, nil},
		"too large a message":         {http.MethodPost, collection, `{"spec": {"prompt": "` + strings.Repeat("x", 5<<20) + `"}}`, []string{"may have 4194304", "blob"}, nil},
		"unknown query parameter":     {http.MethodGet, collection + "?filterr=zzz", "", []string{"filterr: unknown query parameter; known: pageSize, "}, []string{"filterr"}},
		"unknown nested parameter":    {http.MethodGet, collection + "?page_size.x=1", "", []string{"page_size.x: unknown query parameter"}, []string{"page_size.x"}},
		"query of a call with a body": {http.MethodPost, collection + "?request_id=1", `{}`, []string{"request_id: unknown query parameter; this call takes none"}, []string{"request_id"}},
		"query that is no number":     {http.MethodGet, collection + "?page_size=many", "", []string{"many"}, []string{"page_size"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, said := call(t, tt.method, "http://"+addr+tt.path, tt.body, nil)
			require.Equal(t, http.StatusBadRequest, resp.StatusCode, said)
			var got refusal
			require.NoError(t, json.Unmarshal([]byte(said), &got))
			for _, want := range tt.says {
				assert.Contains(t, got.Error.Message, want)
			}
			require.NotEmpty(t, got.Error.Details)
			reason := "INVALID_REQUEST"
			if strings.HasPrefix(name, "too large") {
				reason = "REQUEST_TOO_LARGE"
			}
			assert.Equal(t, reason, got.Error.Details[0].Reason)
			var fields []string
			for _, d := range got.Error.Details {
				for _, v := range d.FieldViolations {
					fields = append(fields, v.Field)
				}
			}
			assert.Equal(t, tt.fields, fields)
		})
	}
}

// Enum values are accepted with and without their prefix, in bodies and in queries.
func TestAnEnumIsTakenWithAndWithoutItsPrefix(t *testing.T) {
	t.Parallel()
	created := make(chan *agentv1.CreateRunRequest, 1)
	url := "http://" + start(t, &runs{created: created}) + "/api/v1/projects/default/runs"
	for _, role := range []string{"ROLE_USER", "user", "User", "USER"} {
		resp, said := call(t, http.MethodPost, url, `{"spec": {"steps": [{"name": "a"}], "limits": {"tokens": 9007199254740993}, "input": [{"role": "`+role+`"}]}}`, nil)
		require.Equal(t, http.StatusOK, resp.StatusCode, said)
		spec := waittest.For(t, created, "the call").GetSpec()
		assert.Equal(t, modelv1.Role_ROLE_USER, spec.GetInput()[0].GetRole(), role)
		assert.EqualValues(t, 9007199254740993, spec.GetLimits().GetTokens(), "numbers keep their digits")
	}
	const short = `{"spec": {"steps": [{"name": "a"}], "input": [{"role": "user"}]}}`
	for _, body := range []string{short + ` garbage`, short + short, strings.Replace(short, `"a"`, "\"\xff\"", 1)} {
		resp, said := call(t, http.MethodPost, url, body, nil)
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode, "%s: %s", body, said)
	}
	for _, view := range []string{"RUN_VIEW_FULL", "full", "FULL", "2"} {
		resp, said := call(t, http.MethodGet, url+"/none?view="+view, "", nil)
		assert.Equal(t, http.StatusNotFound, resp.StatusCode, "%s: %s", view, said)
	}
}

// An invalid value is rejected with the caller's name of the field and a description of the expected value.
func TestAValueThatIsNoneOfItsFieldSaysWhatIsWanted(t *testing.T) {
	t.Parallel()
	url := "http://" + start(t, &runs{}) + "/api/v1/projects/default/runs"
	for name, tt := range map[string]struct{ method, query, body, field, says string }{
		"an enum":               {http.MethodPost, "", `{"spec": {"input": [{"role": "usr"}]}}`, "spec.input[0].role", `unknown value "usr"; known: system, user, assistant, tool`},
		"a duration":            {http.MethodPost, "", `{"spec": {"limits": {"time": "600"}}}`, "spec.limits.time", "want seconds with an s behind them, such as 600s"},
		"a duration, a number":  {http.MethodPost, "", `{"spec": {"limits": {"working_time": 600}}}`, "spec.limits.working_time", "want seconds with an s behind them"},
		"a whole number":        {http.MethodPost, "", `{"spec": {"limits": {"tokens": "many"}}}`, "spec.limits.tokens", "want a whole number"},
		"a number":              {http.MethodPost, "", `{"spec": {"limits": {"cost": true}}}`, "spec.limits.cost", "want a number"},
		"a flag":                {http.MethodPost, "", `{"spec": {"scoreOnError": "yes"}}`, "spec.scoreOnError", "want true or false"},
		"a text":                {http.MethodPost, "", `{"spec": {"prompt": 1}}`, "spec.prompt", "want a text"},
		"a map":                 {http.MethodPost, "", `{"spec": {"modelRoles": "x"}}`, "spec.modelRoles", "should be an object"},
		"null in a list":        {http.MethodPost, "", `{"spec": {"steps": [{"name": "a"}, null]}}`, "spec.steps[1]", "cannot be null"},
		"null in a map":         {http.MethodPost, "", `{"spec": {"labels": {"a": null}}}`, "spec.labels.a", "cannot be null"},
		"two of a oneof":        {http.MethodPost, "", `{"spec": {"input": [{"content": {"list": {}, "text": "a"}}]}}`, "spec.input[0].content.text", "cannot be set beside list"},
		"two names of a field":  {http.MethodPost, "", `{"spec": {}, "requestId": "a", "request_id": "b"}`, "request_id", "cannot be set beside requestId"},
		"a key twice":           {http.MethodPost, "", `{"spec": {"prompt": "a", "prompt": "b"}}`, "spec.prompt", "stands twice"},
		"a key and a word":      {http.MethodPost, "", `{"spec": {"input": [{"role": "user"}, {"role": "user", "role": "tool"}]}}`, "spec.input[1].role", "stands twice"},
		"too large a number":    {http.MethodPost, "", `{"spec": {"limits": {"tokens": 1e19}}}`, "spec.limits.tokens", "is out of range; want a whole number of 64 bits"},
		"no base64":             {http.MethodPost, "", `{"spec": {"sandboxes": {"s": {"files": [{"path": "a", "content": "hello"}]}}}}`, "spec.sandboxes.s.files[0].content", "want base64"},
		"an enum of a query":    {http.MethodGet, "/r?view=FUL", "", "view", `unknown value "FUL"; known: basic, full`},
		"a number of a query":   {http.MethodGet, "?pageSize=x", "", "pageSize", `is "x"; want a whole number`},
		"a duration of a query": {http.MethodGet, "/r:wait?timeout=soon", "", "timeout", "want seconds with an s behind them"},
		"a map without a key":   {http.MethodGet, "?labels=a", "", "labels", "write labels[KEY]=VALUE"},
		"a key of no map":       {http.MethodGet, "?eval[a]=b", "", "eval[a]", "has no keys; write eval=VALUE"},
		"two values of a key":   {http.MethodGet, "?labels[a]=b&labels[a]=c", "", "labels[a]", "is given 2 times; give it once"},
		"two of a query":        {http.MethodGet, "?pageSize=1&pageSize=2", "", "pageSize", "is given 2 times; give it once"},
		"a flag of a query":     {http.MethodGet, "/r:watch?content=ja", "", "content", "want true or false"},
	} {
		resp, said := call(t, tt.method, url+tt.query, tt.body, nil)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, "%s: %s", name, said)
		var got refusal
		require.NoError(t, json.Unmarshal([]byte(said), &got), said)
		require.Len(t, got.Error.Details, 2, "%s: %s", name, said)
		assert.Equal(t, "INVALID_REQUEST", got.Error.Details[0].Reason, name)
		violation := got.Error.Details[1].FieldViolations[0]
		assert.Equal(t, tt.field, violation.Field, name)
		assert.Contains(t, violation.Description, tt.says, name)
		assert.NotContains(t, said, "strconv", name)
	}
}
