// SPDX-License-Identifier: BSD-2-Clause
/*
 * api_routes.c - the routes of the management API as JSON, for test_api to compare with openapi.yaml.
 */
#include <stdio.h>

#include "http.h"

static json_t *field_json(const struct field *field);

static json_t *listed_json(const struct field *fields)
{
	json_t *o = json_object();

	for (; fields->name; fields++)
		json_object_set_new(o, fields->name, field_json(fields));
	return o;
}

static json_t *field_json(const struct field *field)
{
	return json_pack("{s:b s:o}", "required", field->required, "fields",
			 field->fields ? listed_json(field->fields) : json_null());
}

static json_t *fields_json(const struct route *route)
{
	json_t *o = json_object();
	struct field field;

	for (unsigned int i = 0; route->body == BODY_JSON && route_field(route, i, &field); i++)
		json_object_set_new(o, field.name, field_json(&field));
	return o;
}

int main(void)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < num_routes; i++)
		json_array_append_new(
			list,
			json_pack("{s:s s:s s:s s:i s:s s:b s:s s:o}", "method",
				  method_word(routes[i].method), "path", routes[i].path, "name",
				  route_word(routes[i].name), "body", (int)routes[i].body,
				  "queries", routes[i].queries, "open", routes[i].role == ROLE_NONE,
				  "role", role_word(routes[i].role), "fields",
				  fields_json(&routes[i])));
	json_dumpf(list, stdout, JSON_INDENT(1));
	json_decref(list);
	return 0;
}
