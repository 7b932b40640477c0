// SPDX-License-Identifier: BSD-2-Clause
/*
 * main.jsx - entry point: renders the shell.
 */
import { render } from "preact";
import { takeToken } from "./api.js";
import { startJournal } from "./events.js";
import { Shell } from "./shell.jsx";
import "./style.css";

takeToken();
startJournal();
render(<Shell />, document.getElementById("app"));
