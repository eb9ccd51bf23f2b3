package endpoint

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// page is a part of the list of models, in its order.
type page struct {
	models []model
	// more means that the list continues beyond the page, in the direction in which it is read.
	more bool
}

// maxPage bounds the page that Anthropic's and Google's lists may ask for.
const maxPage = 1000

// anthropicPage is a page as Anthropic's API has it (https://platform.claude.com/docs/en/api/models/list): the models
// after or before one, at most limit. Without a limit the page has the rest of the list.
func anthropicPage(query url.Values, all []model) (page, error) {
	limit, err := countOf(query, "limit", len(all))
	if err != nil {
		return page{}, err
	}
	if limit > maxPage && query.Has("limit") {
		return page{}, refuse(http.StatusBadRequest, fmt.Sprintf("limit: must be between 1 and %d", maxPage))
	}
	after, before := query.Get("after_id"), query.Get("before_id")
	switch {
	case after != "" && before != "":
		return page{}, refuse(http.StatusBadRequest, "after_id and before_id exclude each other; give one")
	case after != "":
		at, err := placeOf(all, "after_id", after)
		if err != nil {
			return page{}, err
		}
		all = all[at+1:]
	case before != "":
		at, err := placeOf(all, "before_id", before)
		if err != nil {
			return page{}, err
		}
		return page{models: all[max(0, at-limit):at], more: at > limit}, nil
	}
	return page{models: all[:min(limit, len(all))], more: len(all) > limit}, nil
}

// geminiPage is a page as Google's API has it (https://ai.google.dev/api/models#method:-models.list): at most pageSize
// models from pageToken on, which is the name of the last model before. Without a size the page has the rest of the
// list.
func geminiPage(query url.Values, all []model) (page, error) {
	if query.Get("pageSize") == "0" { // As if it were left out (https://google.aip.dev/158).
		query.Del("pageSize")
	}
	size, err := countOf(query, "pageSize", len(all))
	if err != nil {
		return page{}, err
	}
	if query.Has("pageSize") {
		size = min(size, maxPage)
	}
	if token := query.Get("pageToken"); token != "" {
		at, err := placeOf(all, "pageToken", token)
		if err != nil {
			return page{}, err
		}
		all = all[at+1:]
	}
	return page{models: all[:min(size, len(all))], more: len(all) > size}, nil
}

// countOf is a positive number of the query; absent if the query lacks it.
func countOf(query url.Values, name string, absent int) (int, error) {
	if !query.Has(name) {
		return absent, nil
	}
	n, err := strconv.Atoi(query.Get(name))
	if err != nil || n < 1 {
		return 0, refuse(http.StatusBadRequest, name+": must be a whole number from 1 on")
	}
	return n, nil
}

// placeOf is the place of the model that a member of the query names.
func placeOf(all []model, member, name string) (int, error) {
	at := slices.IndexFunc(all, func(m model) bool { return m.name == name })
	if at < 0 {
		return 0, refuse(http.StatusBadRequest, member+": no model of the list is `"+cut(name)+"`")
	}
	return at, nil
}
