// SPDX-License-Identifier: BSD-2-Clause
/*
 * icons.jsx - line icons, 24 by 24. Screen readers skip them: text beside them has the meaning.
 */
const paths = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
  pool: "M12 3v6M12 9 5 15M12 9l7 6M10 3h4v4h-4zM3 15h4v4H3zM17 15h4v4h-4zM10 15h4v4h-4zM12 9v6",
  storage: "M4 6c0-1.700 3.600-3 8-3s8 1.300 8 3-3.600 3-8 3-8-1.300-8-3zM4 6v6c0 1.700 3.600 3 8 3s8-1.300 8-3V6M4 12v6c0 1.700 3.600 3 8 3s8-1.300 8-3v-6",
  connections: "M4 8h13l-3.500-3.500M20 16H7l3.500 3.500",
  memory: "M6 6h12v12H6zM10 10h4v4h-4zM9 3v3M15 3v3M9 18v3M15 18v3M3 9h3M3 15h3M18 9h3M18 15h3",
  events: "M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01",
  audit: "M12 3l7 3v5c0 4.500-3 8-7 10-4-2-7-5.500-7-10V6zM9 12l2 2 4-4",
  about: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 8h.01",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 3v1.500M12 19.500V21M3 12h1.500M19.500 12H21M5.600 5.600l1.100 1.100M17.300 17.300l1.100 1.100M18.400 5.600l-1.100 1.100M6.700 17.300l-1.100 1.100",
  moon: "M20 14.500A8 8 0 0 1 9.500 4 8 8 0 1 0 20 14.500z",
  auto: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 3v18M12 8h7.500M12 12h9M12 16h7.500",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6 6 18",
  plus: "M12 5v14M5 12h14",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  swap: "M7 4 3 8l4 4M3 8h14M17 12l4 4-4 4M21 16H7",
  check: "M5 12.500 10 17 19 7",
  warn: "M12 4 2.500 20h19zM12 10v4M12 17h.01",
  bad: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9 9l6 6M15 9l-6 6",
  up: "M12 19V5M6 11l6-6 6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  eye: "M2.500 12S6 5.500 12 5.500 21.500 12 21.500 12 18 18.500 12 18.500 2.500 12 2.500 12zM12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6z",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  help: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.500 9.500a2.500 2.500 0 1 1 3.500 2.300c-.7.3-1 .9-1 1.700M12 16.800h.01",
  reload: "M20 11a8 8 0 0 0-14-4.500L4 8M4 4v4h4M4 13a8 8 0 0 0 14 4.500l2-1.500M20 20v-4h-4",
  key: "M14.500 13a4.500 4.500 0 1 0-4.300-3.200L4 16v4h4v-2.500h2.500V15h1.700l.6-.7c.5.4 1.100.7 1.700.7zM16 8h.01",
};

export function Icon({ name, size = 18 }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.7"
      stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}

/* Antlers: the mark of the page. */
export function Mark({ size = 28 }) {
  return (
    <svg class="mark" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" class="mark-ground" />
      <g fill="none" class="mark-line" stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round">
        <path d="M13 17.500C9 16 7 13 7 8M7 11l-2.500-2M9.200 14.800 5 14.600M19 17.500c4-1.500 6-4.500 6-9.500M25 11l2.500-2M22.800 14.800 27 14.600" />
        <path d="M12 17h8l-1.500 6L16 26l-2.500-3z" />
      </g>
    </svg>
  );
}
